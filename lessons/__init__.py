"""What the notebooks show and ask, and the tools that build the series."""
