raise ImportError(
    "llamalib.quantization moved in 0.2: the code is in llamalib.fast, its "
    "explanation in notebooks/appendix/B_quantization.ipynb"
)
