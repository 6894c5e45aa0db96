raise ImportError(
    "llamalib.experts moved into notebooks/appendix/C_mixture_of_experts.ipynb "
    "in 0.2"
)
