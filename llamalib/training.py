raise ImportError(
    "llamalib.training moved in 0.2: documents to llamalib.course.text, the "
    "rest to notebooks/appendix/A_training.ipynb"
)
