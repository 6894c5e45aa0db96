raise ImportError("moved to D_long_context.ipynb and course.text.pack_rows")
