raise ImportError(
    "llamalib.long_context moved into notebooks/appendix/D_long_context.ipynb "
    "in 0.2; long_rows is now llamalib.course.text.pack_rows"
)
