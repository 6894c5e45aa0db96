r"""From a checkpoint folder to tensors by Meta's names, and back.

`find` finds the folder, `meta` and `huggingface` read its files, `opening`
moves the tensors to a device, `saving` writes, `download` downloads.
"""
