r"""Hold a checkpoint against what was published about it.

`published.json` has the facts and their sources. `files` compares checksums,
`opened` settings and tensors, `texts` continuations; `mistakes` looks for the
cause of a difference, and `report` makes a table of it all.
"""
