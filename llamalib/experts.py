raise ImportError("moved in 0.2 to appendix/C_mixture_of_experts.ipynb")
