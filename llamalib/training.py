WHERE = "documents to llamalib.course.text, the rest to A_training.ipynb"
raise ImportError(f"llamalib.training moved in 0.2: {WHERE}")
