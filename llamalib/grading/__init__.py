"""Assignments from the notebooks, a sandbox for their answers, and marks."""
