raise ImportError(
    "llamalib.training moved in 0.2: find_text, read_documents and "
    "own_documents are in llamalib.course.text, everything else is in "
    "notebooks/appendix/A_training.ipynb"
)
