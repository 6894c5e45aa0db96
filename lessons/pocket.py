"""For notebooks whose text is about the pocket Llama: `load()` opens it.

Their outputs are the pocket's, so they run on SmolLM2 only if LLAMA_DIR names
it.
"""

from functools import partial

from llamalib.load import POCKET, SMOL, USUAL

from . import map

if SMOL in USUAL:
    USUAL.remove(SMOL)
strip = partial(map.strip, about=POCKET)
