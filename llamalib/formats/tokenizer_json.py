r"""Tokenizers in Hugging Face's format, `tokenizer.json`.

Llama 3's own is rebuilt as the `Tokenizer` that it is: its ranks stand in the
file, written in another alphabet. Any other is run by the tokenizers library,
with the methods of `Tokenizer`.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ..files import read_json
from ..tokenizer import (
    SPLIT_PATTERN,
    Tokenizer,
    check_special,
    check_text,
    checked_ids,
)


def byte_letters() -> dict[str, int]:
    r"""The letter that stands for each byte in a byte-level vocabulary.

    A byte that Latin-1 shows stands for itself; the others, spaces and
    controls, are moved up to 256 and beyond, in order.
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [b for b in range(256) if b not in shown]
    letters = {chr(b): b for b in shown}
    return letters | {chr(256 + i): b for i, b in enumerate(moved)}


BYTE_LETTERS = byte_letters()
LONGEST = 1000  # letters of a token; Llama 3's longest has 128
# what a text and a dialogue are made with
CONTROL = {
    f"<|{name}|>"
    for name in (
        "begin_of_text",
        "end_of_text",
        "start_header_id",
        "end_header_id",
        "eot_id",
    )
}
# what Llama 3's tokenizer.json says besides its vocabulary
LLAMA3_SPLIT = {
    "type": "Split",
    "pattern": {"Regex": SPLIT_PATTERN},
    "behavior": "Isolated",
    "invert": False,
}


def read_tokenizer_json(path):
    r"""The tokenizer of a tokenizer.json.

    Args:
        path: of the file.

    Returns:
        a `Tokenizer` if it is Llama 3's, else a `LibraryTokenizer`.

    Raises:
        ValueError: naming the file and what is wrong with it.
    """
    path = Path(path)
    data = read_json(path)
    try:
        found = llama3_ranks(data)
    except (KeyError, TypeError, AttributeError, ValueError):
        found = None  # not in its form; the library says if in none
    if found is not None:
        return Tokenizer(*found)
    import tokenizers  # where it is needed: it takes a while to import

    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except BaseException as error:  # of Exception, or a PanicException
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise ValueError(
            f"{path} is no tokenizer of the tokenizers library ({error}); "
            "take the file that came with the weights"
        ) from None
    if not library.get_vocab(with_added_tokens=True):
        raise ValueError(
            f"{path} has no tokens; take the file that came with the weights"
        )
    return LibraryTokenizer(library, data)


def llama3_ranks(data: dict):
    r"""Ranks and special tokens, if a tokenizer.json is of Llama 3's kind.

    It is if it cuts a text by the same pattern, works on bytes, and merges
    every pair that makes a token, the lowest first: what tiktoken does with
    ranks. Then both give the same ids.
    """
    model, cut = data["model"], data["pre_tokenizer"]["pretokenizers"]
    of_this_kind = (
        model["type"] == "BPE"
        and model.get("ignore_merges") is True
        and not data.get("normalizer")
        and len(cut) == 2
        and {k: cut[0].get(k) for k in LLAMA3_SPLIT} == LLAMA3_SPLIT
        and cut[1]["type"] == "ByteLevel"
        and cut[1].get("use_regex") is False
        and cut[1].get("add_prefix_space") is False
    )
    if not of_this_kind:
        return None
    ids = model["vocab"]
    plain = ("lstrip", "rstrip", "single_word", "normalized")
    for token in data["added_tokens"]:
        if not token["special"] or any(token.get(key) for key in plain):
            return None
    if max(map(len, ids)) > LONGEST:
        return None
    if sorted(ids.values()) != list(range(len(ids))):
        return None
    tokens = sorted(ids, key=ids.get)
    if not merges_all(model["merges"], ids):
        return None
    ranks = {to_bytes(token): ids[token] for token in tokens}
    if any(bytes([b]) not in ranks for b in range(256)):
        return None
    special = {t["content"]: t["id"] for t in data["added_tokens"]}
    following = range(len(ids), len(ids) + len(special))
    if sorted(special.values()) != list(following):
        return None
    if not CONTROL <= special.keys():
        return None
    return ranks, special


def merges_all(merges: list, ids: dict[str, int]) -> bool:
    """Whether just the pairs that make a token are merged, lowest first."""
    pairs = [m.split(" ") if isinstance(m, str) else m for m in merges]
    made = [ids[left + right] for left, right in pairs]
    if any(a > b for a, b in zip(made, made[1:])):
        return False
    wanted = sum(
        token[:cut] in ids and token[cut:] in ids
        for token in ids
        for cut in range(1, len(token))
    )
    return wanted == len(made) == len({tuple(pair) for pair in pairs})


def to_bytes(token: str) -> bytes:
    """A token of a byte-level vocabulary; KeyError if it is none."""
    return bytes(BYTE_LETTERS[letter] for letter in token)


class LibraryTokenizer:
    r"""Any tokenizer of the tokenizers library, with `Tokenizer`'s methods.

    Args:
        library: a tokenizers.Tokenizer.
        data: its tokenizer.json.

    Attributes:
        special_tokens: name to id.
        bos_id: what the file puts before a text; None where it puts nothing.
        eos_id, stop_tokens: what ends a text, and a generation. The file
            does not say: None and empty, for who knows to set them.
        n_words, vocab_size: see `Tokenizer`.
    """

    def __init__(self, library, data: dict):
        self._library = library
        # special tokens in a text are text, unless `encode` is told otherwise
        library.encode_special_tokens = True
        # a file may hold what a training had set: a text is given whole
        library.no_truncation()
        library.no_padding()
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.n_words = self.vocab_size = max(vocabulary.values()) + 1
        self._pieces = {i: piece for piece, i in vocabulary.items()}
        added = data.get("added_tokens") or []
        self.special_tokens = {
            t["content"]: t["id"] for t in added if t.get("special")
        }
        self.eot_id = None  # it has no dialogue of Llama 3's
        self._on_bytes = "ByteLevel" in str(data.get("decoder"))
        self.bos_id = self._first_added()
        self.eos_id, self.stop_tokens = None, frozenset()

    def encode(
        self,
        s: str,
        *,
        bos: bool,
        eos: bool,
        allowed_special: Collection[str] = (),
    ) -> list[int]:
        """Token ids of a text; see `Tokenizer.encode`."""
        check_text(s)
        allowed = check_special(allowed_special, self.special_tokens)
        ids = [self.bos_id] if bos and self.bos_id is not None else []
        for part in split_at(s, allowed):
            if part in allowed:
                ids.append(self.special_tokens[part])
            else:
                ids += self._library.encode(part, add_special_tokens=False).ids
        return ids + [self.eos_id] if eos and self.eos_id is not None else ids

    def encode_chat(self, messages) -> list[int]:
        """Not known of other tokenizers: ValueError."""
        raise ValueError(
            "this tokenizer is not Llama 3's, and has a format of its own "
            "for dialogues; encode a plain text"
        )

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, one after another."""
        return b"".join(self._bytes_of(i) for i in self._checked(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; see `Tokenizer.decode`."""
        ids = self._checked(ids)
        return self._library.decode(ids, skip_special_tokens=False)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        r"""The text as it grows; see `Tokenizer.decode_stream`.

        Bytes that make no character may come otherwise than from `decode`:
        some tokenizers give up a whole run of them for one that is wrong.
        """
        # decoded behind the piece before, which may say whether a space
        # begins; what ends in half a character waits for the rest
        before, waiting = [], []
        for i in ids:
            waiting += self._checked([i])
            piece = self._piece(before, waiting)
            if not waiting or piece.endswith("\ufffd"):
                yield ""
                continue
            yield piece
            before, waiting = waiting, []
        rest = self._piece(before, waiting)
        if rest:
            yield rest

    def _piece(self, before: list[int], ids: list[int]) -> str:
        """What ids add to the text of those before them."""
        return self.decode(before + ids)[len(self.decode(before)) :]

    def _checked(self, ids) -> list[int]:
        """Those that are tokens, or ValueError."""
        ids = checked_ids(ids, self.vocab_size)
        return [i for i in ids if i in self._pieces]

    def _first_added(self) -> int | None:
        """What stands before a text that the library encodes for a model."""
        plain = self._library.encode("a", add_special_tokens=False).ids
        added = self._library.encode("a", add_special_tokens=True).ids
        before = added[: len(added) - len(plain)]
        is_before = before and added[1 : 1 + len(plain)] == plain
        return before[0] if is_before else None

    def _bytes_of(self, i: int) -> bytes:
        """One token's."""
        piece = self._pieces[i]
        if piece in self.special_tokens:
            return piece.encode()
        if self._on_bytes and all(c in BYTE_LETTERS for c in piece):
            return to_bytes(piece)
        if re.fullmatch("<0x[0-9A-F]{2}>", piece):  # a byte that is no token
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()


def split_at(s: str, names: Collection[str]) -> list[str]:
    """A text in parts, each a name of these or without any of them."""
    if not names:
        return [s] if s else []
    longest_first = sorted(names, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    return [part for part in re.split(f"({either})", s) if part]
