"""What the notebooks show and ask: pictures, widgets, checks."""
