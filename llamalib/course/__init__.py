"""What the notebooks use apart from the model: texts, and a way to break it."""
