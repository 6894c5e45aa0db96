raise ImportError(
    "moved to D_long_context.ipynb; long_rows: llamalib.course.text.pack_rows"
)
