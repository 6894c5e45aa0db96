"""Assignments from the notebooks, and marks for what is handed in."""
