"""What makes the series: cells, frames, the learner's copy, courses, pages.

Notebooks and `lessons` import nothing from here, but for the index, which
shows the explorer.
"""
