"""What the commands start."""
