r"""Texts to train and measure on, and rows of their token ids."""

import codecs
import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from llamalib.checks import read_start, reject_lookalikes
from llamalib.load import ROOT
from llamalib.model import Llama

from .needs import is_large

TEXTS = ("TinyStories-train.txt", "tinyshakespeare.txt")
END_OF_TEXT = "<|endoftext|>"  # separates the stories of TinyStories
MIN_TEXTS = 20  # enough to learn from some and to hold out others
ADVICE = "data/README.md says where to get a text"
# A plain short story to look at.
STORY = (
    "One summer day, Mira went to the market. Mira had a round key and took "
    "it everywhere. One day Mira left the round key at the market and did "
    "not notice. In the evening Mira looked for the round key, but it was "
    "gone. So Mira went back to the market. There was the round key!"
)


def find_text(path=None) -> Path | None:
    r"""Return the file to learn from, or None if there is none.

    That is `path`, else the file that `$LLAMA_TEXT` names, else one of
    `TEXTS` in `data`, in the project or in a folder above the current one.
    Raise FileNotFoundError if the named file does not exist.
    """
    named = path or os.environ.get("LLAMA_TEXT")
    if not named:
        folders = [f / "data" for f in (ROOT, Path.cwd(), *Path.cwd().parents)]
        files = (folder / name for folder in folders for name in TEXTS)
        return next(filter(Path.is_file, files), None)
    given = os.path.expanduser(named)
    # a notebook runs in its own folder, not where Jupyter was started
    for file in (Path(given), ROOT / given):
        if os.path.isfile(file):
            return file
    raise FileNotFoundError(
        f"{str(named)[:200]} ({'path' if path else 'LLAMA_TEXT'}) is not a "
        f"file; expected a text file: {ADVICE}"
    )


def read_documents(file, max_bytes: int = 4_000_000) -> list[str]:
    r"""Return the texts of a UTF-8 file: stories, speeches, paragraphs.

    They are separated by `<|endoftext|>` if the file has it, else by blank
    lines. Only the first `max_bytes` are read; a text cut there is dropped.
    Raise ValueError if the file is not UTF-8 or has fewer than 20 texts.
    """
    file = Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; {ADVICE}")
    reject_lookalikes(file)
    data = read_start(file, max_bytes)
    whole = len(data) == file.stat().st_size
    try:  # a character that max_bytes cuts in two is no error
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, whole)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is not UTF-8: byte {error.start} is "
            f"0x{data[error.start]:02x}; save it as UTF-8 or use another text"
        ) from None
    text = text.replace("\r\n", "\n")
    parts = text.split(END_OF_TEXT if END_OF_TEXT in text else "\n\n")
    parts = parts if whole else parts[:-1]
    texts = [part.strip() for part in parts if part.strip()]
    if len(texts) < MIN_TEXTS:
        raise ValueError(
            f"{file} has {len(texts)} texts; expected at least {MIN_TEXTS}, "
            f"separated by {END_OF_TEXT} or by blank lines"
        )
    return texts


def page() -> str:
    """Return a page of English, 616 words, written for this series."""
    return (ROOT / "lessons" / "page.txt").read_text(encoding="utf-8")


def held_out_texts(llama: Llama) -> list[str]:
    """Return fifty texts that are not among the pocket's training texts.

    Return eight of them for a large model, which takes seconds for each.
    """
    file = ROOT / "data" / "recipe" / "held_out.json"
    texts = json.loads(file.read_text(encoding="utf-8"))
    return texts[:8] if is_large(llama) else texts


def load_corpus() -> ModuleType:
    """Import data/recipe/corpus.py, which writes the pocket Llama's text."""
    folder, name = ROOT / "data" / "recipe", "llamalib_recipe"
    if not (folder / "corpus.py").is_file():
        raise FileNotFoundError(
            f"{folder} has no corpus.py: run the notebooks in the project"
        )
    # a package of its own: a reader may have another words.py or corpus.py
    sys.modules.setdefault(name, ModuleType(name)).__path__ = [str(folder)]
    return importlib.import_module(f"{name}.corpus")


def own_documents(n: int, kinds=None, seed="appendix") -> list[str]:
    r"""Return n documents from the generator of the pocket Llama's text.

    Args:
        kinds: names of functions of data/recipe/corpus.py, such as
            "gift_story"; None: the mixture that the pocket was trained on.
        seed: the pocket was trained on the documents of "train".
    """
    corpus = load_corpus()
    makers = {f.__name__: f for f in (*corpus.MIXTURE, *corpus.STORIES)}
    if unknown := sorted(set(kinds or ()) - set(makers)):
        raise ValueError(f"unknown kinds {unknown}; expected {list(makers)}")
    chosen = [makers[kind] for kind in kinds or ()]
    return list(corpus.documents(seed, n, chosen))


def begin_and_text(tokenizer, text: str) -> tuple[list[int], list[int]]:
    """Return a begin token's ids, none in some families, and the text's."""
    begin = tokenizer.encode("", bos=True, eos=False)
    return begin, tokenizer.encode(text, bos=False, eos=False)


def pack_rows(documents, tokenizer, n: int, length: int) -> Tensor:
    r"""Return n rows of ids, (n, length + 1): one document after another.

    Each document is between its begin and end tokens. A row starts with a
    document's first token; the rest of its last document is dropped. The
    last position's target needs one id more than `length`.
    """
    rows = torch.empty(n, length + 1, dtype=torch.int64)
    row, filled = [], 0
    for text in documents:
        row += tokenizer.encode(text, bos=True, eos=True)
        if len(row) > length:
            rows[filled] = torch.tensor(row[: length + 1])
            row, filled = [], filled + 1
            if filled == n:
                return rows  # (n, T + 1)
    raise ValueError(f"the documents fill {filled} of {n} rows")
