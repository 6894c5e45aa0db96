r"""From a folder to tensors by Meta's names."""
