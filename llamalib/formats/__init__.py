r"""From a checkpoint folder to tensors by Meta's names, and back.

`find` finds a folder, `download` fetches it, `meta` and `huggingface` read
it, and `placing` moves its tensors to a device. `meta` also writes.
"""
