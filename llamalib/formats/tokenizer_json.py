r"""Read Hugging Face's `tokenizer.json`.

Llama 3's becomes a `Tokenizer`: the file holds its ranks in another alphabet.
Any other is run by the tokenizers library, with the methods of `Tokenizer`.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..checks import check_ids
from ..files import read_json
from ..tokenizer import SPLIT_PATTERN, Tokenizer, check_special, check_text

# The character that stands for each byte: Latin-1's, if printable; spaces
# and controls are moved up to 256 and beyond, in order.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
CONTROLS = sorted(set(range(256)) - set(PRINTABLE))
BYTES = {chr(b): b for b in PRINTABLE}
BYTES |= {chr(256 + i): b for i, b in enumerate(CONTROLS)}
# How Llama 3's file splits a text, and writes it in those characters
SPLIT = dict(type="Split", pattern={"Regex": SPLIT_PATTERN})
SPLIT |= dict(behavior="Isolated", invert=False)
BYTE_LEVEL = dict(type="ByteLevel", use_regex=False, add_prefix_space=False)
# its tokens for texts and dialogues, and the most characters of any token
NAMES = "begin_of_text end_of_text start_header_id end_header_id eot_id"
NEEDED = {f"<|{name}|>" for name in NAMES.split()}
LONGEST = 1000  # published: 128


def read_tokenizer_json(path):
    """Return a `Tokenizer` if the file is Llama 3's, or LibraryTokenizer."""
    data = read_json(Path(path))
    try:
        found = llama3_ranks(data)
    except (KeyError, TypeError, AttributeError, ValueError):
        found = None  # another form, which the library may know
    if found is not None:
        return Tokenizer(*found)
    import tokenizers  # only if needed: the import takes a while

    try:
        library = tokenizers.Tokenizer.from_file(str(path))
        if not library.get_vocab(with_added_tokens=True):
            raise ValueError("it has no tokens")
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # PanicException is not an Exception
        raise ValueError(
            f"{path} cannot be read by the tokenizers library ({error}); take "
            "the file that came with the weights"
        ) from None
    return LibraryTokenizer(library, data)


def llama3_ranks(data: dict) -> tuple[dict, dict] | None:
    r"""Return ranks and special tokens, or None for another tokenizer.

    tiktoken gives the same ids if the text is split alike, and if just the
    pairs that make a token are merged, the lowest first.
    """
    ids = data["model"]["vocab"]
    special = {t["content"]: t["id"] for t in data["added_tokens"]}
    n = len(ids) + len(special)
    "".join([*ids, *special]).encode()  # a number or half a character: raises
    ranks = {to_bytes(token): ids[token] for token in sorted(ids, key=ids.get)}
    is_llama3 = (
        splits_as_llama3(data)
        and NEEDED <= special.keys()
        and max(map(len, ids)) <= LONGEST
        and max(ids.values()) == len(ids) - 1
        and sorted([*ids.values(), *special.values()]) == list(range(n))
        and {type(i) for i in [*ids.values(), *special.values()]} == {int}
        and all(special)
        and all(bytes([b]) in ranks for b in range(256))
        and merges_all(data["model"]["merges"], ids)
    )
    return (ranks, special) if is_llama3 else None


def splits_as_llama3(data: dict) -> bool:
    """Whether texts are split, and special tokens found, as in Llama 3."""
    model, added = data["model"], data["added_tokens"]
    split, letters = data["pre_tokenizer"]["pretokenizers"]
    options = ("lstrip", "rstrip", "single_word", "normalized")
    return (
        model["type"] == "BPE"
        and model.get("ignore_merges") is True
        and not data.get("normalizer")
        and SPLIT.items() <= split.items()
        and BYTE_LEVEL.items() <= letters.items()
        and all(token["special"] for token in added)
        and not any(token.get(key) for token in added for key in options)
    )


def merges_all(merges: list, ids: dict[str, int]) -> bool:
    """Whether just the pairs that make a token are merged, lowest first."""
    pairs = [m.split(" ") if isinstance(m, str) else m for m in merges]
    made = [ids[left + right] for left, right in pairs]
    n_splits = sum(
        token[:cut] in ids and token[cut:] in ids
        for token in ids
        for cut in range(1, len(token))
    )
    n_pairs = len({tuple(pair) for pair in pairs})
    return made == sorted(made) and n_splits == len(made) == n_pairs


def to_bytes(token: str) -> bytes:
    """Return the bytes of a token of a byte-level vocabulary, or KeyError."""
    return bytes(BYTES[character] for character in token)


class LibraryTokenizer:
    r"""A tokenizers.Tokenizer with the methods and attributes of `Tokenizer`.

    tokenizer.json, `data`, does not say eos_id and stop_tokens: the caller
    sets them. bos_id is what the library puts before a text, or None.
    """

    def __init__(self, library, data: dict):
        self._library = library
        # special tokens in a text are text, unless `encode` is told otherwise
        library.encode_special_tokens = True
        library.no_truncation()  # a training may have left both on
        library.no_padding()
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.n_words = self.vocab_size = max(vocabulary.values()) + 1
        self._pieces = {i: piece for piece, i in vocabulary.items()}
        added = data.get("added_tokens") or []
        special = [token for token in added if token.get("special")]
        self.special_tokens = {t["content"]: t["id"] for t in special}
        self._is_byte_level = "ByteLevel" in str(data.get("decoder"))
        self.bos_id, self.eos_id, self.eot_id = self._first_id(), None, None
        self.stop_tokens = frozenset()

    def encode(self, s: str, *, bos, eos, allowed_special=()) -> list[int]:
        """Return the token ids of a text; see `Tokenizer.encode`."""
        check_text(s)
        allowed = check_special(allowed_special, self.special_tokens)
        ids = [self.bos_id] if bos and self.bos_id is not None else []
        longest_first = sorted(allowed, key=len, reverse=True)
        names = "|".join(map(re.escape, longest_first)) or "(?!)"
        for part in filter(None, re.split(f"({names})", s)):
            if part in allowed:
                ids.append(self.special_tokens[part])
            else:
                ids += self._library.encode(part, add_special_tokens=False).ids
        return ids + [self.eos_id] if eos and self.eos_id is not None else ids

    def encode_chat(self, messages) -> list[int]:
        """Raise ValueError, since the format of a dialogue is not known."""
        raise ValueError(
            "this tokenizer is not Llama 3's, and the format of its dialogues "
            "is not known: encode a plain text"
        )

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of the tokens."""
        return b"".join(self._bytes_of(i) for i in self._tokens(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the tokens; see `Tokenizer.decode`."""
        ids = self._tokens(ids)
        return self._library.decode(ids, skip_special_tokens=False)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text as it grows; see `Tokenizer.decode_stream`."""
        # after a piece, since one may lose its space at the start of a text;
        # ids that end inside a character wait for the rest
        before, waiting = [], []
        for i in ids:
            waiting += self._tokens([i])
            piece = self._piece(before, waiting)
            if piece.endswith("\ufffd"):
                piece = ""
            elif waiting:
                before, waiting = waiting, []
            yield piece
        if rest := self._piece(before, waiting):
            yield rest

    def _piece(self, before: list[int], ids: list[int]) -> str:
        """Return what ids add to the text of those before them."""
        return self.decode(before + ids)[len(self.decode(before)) :]

    def _tokens(self, ids) -> list[int]:
        """Return the ids that have a token; ValueError outside vocab_size."""
        ids = check_ids("ids", ids, self.vocab_size, "token ids")
        return [i for i in ids if i in self._pieces]

    def _first_id(self) -> int | None:
        """Return the id that the library puts before a text for a model."""
        plain = self._library.encode("a", add_special_tokens=False).ids
        added = self._library.encode("a", add_special_tokens=True).ids
        has_one = plain == added[1 : len(plain) + 1] and added != plain
        return added[0] if has_one else None

    def _bytes_of(self, i: int) -> bytes:
        piece = self._pieces[i]
        if piece in self.special_tokens:
            return piece.encode()
        if self._is_byte_level and all(c in BYTES for c in piece):
            return to_bytes(piece)
        if re.fullmatch("<0x[0-9A-F]{2}>", piece):  # SentencePiece's bytes
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
