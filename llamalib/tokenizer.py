r"""Text to token ids and back.

`Tokenizer` is Llama 3's, run by tiktoken. `HuggingFaceTokenizer` is that of
any other model, run by the tokenizers library.
"""

import base64
import codecs
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import tiktoken

from .checks import check_ids, damaged, read_json, reject_lookalikes, require

# Regex that splits text into pre-tokens: contractions; a word with at most one
# leading non-letter; up to 3 digits; punctuation; line breaks; space.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)

# The 256 special tokens after the mergeable ranks, as in Llama 3.1 and 3.2.
# (Llama 3 reserved 4, 8 and 10; Meta's later code names 5 step_id, 11 image.)
_RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(248)]
SPECIAL_TOKENS = (  # names of the 256 special tokens, in the order of ids
    ["<|begin_of_text|>", "<|end_of_text|>"]
    + _RESERVED[:2]
    + ["<|finetune_right_pad_id|>", _RESERVED[2]]
    + ["<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"]
    + ["<|python_tag|>"]
    + _RESERVED[3:]
)
ROLES = ("system", "user", "assistant", "ipython")  # ipython: a tool's answer
# The character that stands for each byte in a tokenizer.json: Latin-1's, if it
# is printable; spaces and controls are moved up to 256 and beyond, in order.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_CONTROLS = sorted(set(range(256)) - set(_PRINTABLE))
BYTES = {chr(b): b for b in _PRINTABLE}
BYTES |= {chr(256 + i): b for i, b in enumerate(_CONTROLS)}
# How Llama 3's tokenizer.json splits a text, and writes bytes
SPLIT = dict(type="Split", pattern={"Regex": SPLIT_PATTERN})
SPLIT |= dict(behavior="Isolated", invert=False)
BYTE_LEVEL = dict(type="ByteLevel", use_regex=False, add_prefix_space=False)
# its tokens for texts and dialogues, and the most characters of any token
NAMES = "begin_of_text end_of_text start_header_id end_header_id eot_id"
NEEDED = {f"<|{name}|>" for name in NAMES.split()}
LONGEST = 1000  # published: 128
# A run of a million spaces overflows the stack of tiktoken's regular
# expressions, so longer runs are cut (Meta's code cuts them at 25,000).
LONGEST_RUN = 200_000


def read_ranks(path) -> dict[bytes, int]:
    r"""Read the mergeable ranks of a tokenizer.model in tiktoken's format.

    Each line is a token's bytes in base64, a space, and its rank. (tiktoken's
    own `load_tiktoken_bpe` caches by file name, and would return the old
    ranks after the file has changed.) Raises ValueError naming the line.
    """
    path = Path(path)
    reject_lookalikes(path)
    data = path.read_bytes()
    if is_sentencepiece(data):
        raise ValueError(
            f"{path} is a SentencePiece model, of Llama 1 or 2; Llama 3's "
            "tokenizer.model has lines like 'IQ== 0'"
        )
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        try:
            token, rank = line.split()
            token, rank = base64.b64decode(token, validate=True), int(rank)
        except ValueError:
            token = rank = None
        if token is None or token in ranks or rank != len(ranks):
            raise ValueError(
                f"{path}, line {number}: {line[:40]!r} is not a new token in "
                f"base64, a space and its rank {len(ranks)}. The file is "
                "damaged: take the one that came with the weights"
            )
        ranks[token] = rank
    known = sum(bytes([b]) in ranks for b in range(256))
    if known < 256:
        raise ValueError(
            f"{path} is truncated: only {known} of the 256 single-byte tokens "
            "are present"
        )
    return ranks


def is_sentencepiece(start: bytes) -> bool:
    """Return whether a file that starts like this is a SentencePiece model."""
    return start[:1] == b"\n" or b"<unk>" in start[:64]


def write_ranks(path, ranks: dict[bytes, int]) -> None:
    """Write a file for `read_ranks`."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    lines = [base64.b64encode(t) + b" %d\n" % rank for t, rank in ordered]
    Path(path).write_bytes(b"".join(lines))


class Tokenizer:
    r"""Llama 3's tokenizer.

    ranks: token bytes to rank, 0 … n-1; all 256 single bytes among them.
    special_tokens: name to id; None: `SPECIAL_TOKENS` after the ranks.
    n_words: ranks and special tokens.  stop_tokens: ids that end a generation.
    vocab_size: rows of the embedding; ids from n_words on decode to nothing.
    """

    def __init__(self, ranks: dict[bytes, int], special_tokens=None):
        self.ranks, n = ranks, len(ranks)
        self.special_tokens = special_tokens or {
            name: n + i for i, name in enumerate(SPECIAL_TOKENS)
        }
        self.vocab_size = self.n_words = n + len(self.special_tokens)
        self._encoding = tiktoken.Encoding(
            "llama3",
            pat_str=SPLIT_PATTERN,
            mergeable_ranks=ranks,
            special_tokens=self.special_tokens,
        )
        self.bos_id = self.special_tokens["<|begin_of_text|>"]
        self.eos_id = self.special_tokens["<|end_of_text|>"]
        self.eot_id = self.special_tokens.get("<|eot_id|>")
        self.eom_id = self.special_tokens.get("<|eom_id|>")
        ends = {self.eos_id, self.eot_id, self.eom_id}
        self.stop_tokens = frozenset(ends - {None})

    @classmethod
    def from_file(cls, path) -> "Tokenizer":
        """Read a tokenizer.model; see `read_ranks`."""
        return cls(read_ranks(path))

    def encode(
        self,
        s: str,
        *,
        bos: bool,
        eos: bool,
        allowed_special: Collection[str] = (),
    ) -> list[int]:
        r"""Return the token ids of a text.

        bos, eos: whether to add `<|begin_of_text|>`, `<|end_of_text|>`.
        allowed_special: names in `s` to encode as special tokens, or "all".
        Any other name is plain text, so that a user cannot end the turn.
        Raises TypeError if `s` is not a str, ValueError if UTF-8 cannot hold
        it or a name is not a special token.
        """
        check_text(s)
        allowed = check_special(allowed_special, self.special_tokens)
        ids = [self.bos_id] if bos else []
        for part in split_long_runs(s, LONGEST_RUN):
            ids += self._encoding.encode(
                part, allowed_special=allowed, disallowed_special=()
            )
        return ids + [self.eos_id] if eos else ids

    def encode_chat(self, messages: Iterable[Mapping]) -> list[int]:
        r"""Return the ids of a dialogue in an Instruct model's format.

        Each message is a header with its role, the content and `<|eot_id|>`;
        the header of the answer comes last. Control tokens come from this
        format alone: in a message their names are plain text.

        messages: each with "role", one of `ROLES`, and "content", a text.
        Source: Meta's published prompt format of Llama 3.
        """
        if self.eot_id is None:
            raise ValueError(
                "this tokenizer has no <|eot_id|>: it is not made for dialogues"
            )
        ids = [self.bos_id]
        for role, content in checked_messages(messages):
            ids += self._header(role)
            ids += self.encode(content.strip(), bos=False, eos=False)
            ids.append(self.eot_id)
        return ids + self._header("assistant")

    def _header(self, role: str) -> list[int]:
        text = f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        return self.encode(text, bos=False, eos=False, allowed_special="all")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of the tokens, concatenated."""
        ids = check_ids("ids", ids, self.vocab_size, "token ids")
        tokens = [i for i in ids if i < self.n_words]
        return self._encoding.decode_bytes(tokens)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the tokens; half an emoji becomes U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield a piece of text per token; a character when it is complete."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for i in ids:
            yield decoder.decode(self.decode_bytes([i]))
        if rest := decoder.decode(b"", final=True):
            yield rest


class HuggingFaceTokenizer:
    r"""A tokenizer of another model than Llama 3, run by `tokenizers`.

    library: a tokenizers.Tokenizer.  data: the tokenizer.json it was read
    from.
    bos_id: the id that the library puts before a text for a model, or None.
    `load` then takes the config's, but `encode` still puts none there.
    eos_id, stop_tokens: None and empty; `load` takes them from the configs.
    vocab_size: rows of the embedding; ids without a token decode to nothing.
    It has no ranks and no format for dialogues.
    """

    eos_id = eot_id = eom_id = None
    stop_tokens = frozenset()

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
        self._missing = missing_bytes(data)
        plain = library.encode("a", add_special_tokens=False).ids
        whole = library.encode("a", add_special_tokens=True).ids
        starts = whole != plain and plain == whole[1 : len(plain) + 1]
        self._before = whole[:1] if starts else []
        self.bos_id = whole[0] if starts else None

    def encode(
        self,
        s: str,
        *,
        bos: bool,
        eos: bool,
        allowed_special: Collection[str] = (),
    ) -> list[int]:
        r"""Return the token ids of a text; see `Tokenizer.encode`.

        Raises ValueError for a byte without a token: some vocabularies lack
        rare bytes, and the library would leave them out.
        """
        check_text(s)
        if self._missing and (lost := self._missing.intersection(s.encode())):
            raise ValueError(
                f"the tokenizer has no token for the byte 0x{min(lost):02X}, "
                f"which is in {s!r:.80}"
            )
        allowed = check_special(allowed_special, self.special_tokens)
        longest_first = sorted(allowed, key=len, reverse=True)
        names = "|".join(map(re.escape, longest_first)) or "(?!)"
        ids = list(self._before) if bos else []
        for part in filter(None, re.split(f"({names})", s)):
            if part in allowed:
                ids.append(self.special_tokens[part])
            else:
                ids += self._library.encode(part, add_special_tokens=False).ids
        return ids + [self.eos_id] if eos and self.eos_id is not None else ids

    def encode_chat(self, messages) -> list[int]:
        """Raise ValueError: the format of its dialogues is not known."""
        raise ValueError(
            "this tokenizer is not Llama 3's, and the format of its dialogues "
            "is not known: encode a plain text"
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the tokens; half an emoji becomes U+FFFD."""
        ids = self._tokens(ids)
        return self._library.decode(ids, skip_special_tokens=False)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield a piece of text per token; a character when it is complete."""
        # decoded after the piece before, since a token may lose its space at
        # the start of a text
        before, waiting = [], []
        for i in ids:
            waiting += self._tokens([i])
            piece = self._piece(before, waiting)
            if piece.endswith("\ufffd"):  # half a character waits for more
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


def read_tokenizer_json(path) -> Tokenizer | HuggingFaceTokenizer:
    """Return Llama 3's tokenizer, with its ranks, or any other model's."""
    path = Path(path)
    data = read_json(path)
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
        tokenizer = HuggingFaceTokenizer(library, data)
        check_vocabulary(library, data)
        return tokenizer
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # PanicException is not an Exception
        raise damaged(path, error) from None


def check_vocabulary(library, data: dict) -> None:
    """Raise ValueError for ids that are not unique, or lost letters."""
    vocab, owner = data["model"]["vocab"], {}
    added = [(t["content"], t["id"]) for t in data.get("added_tokens") or []]
    pairs = list(vocab.items()) if isinstance(vocab, dict) else []
    for token, i in pairs + added:
        if owner.setdefault(i, token) != token:
            raise ValueError(f"the id {i} has two tokens")
    for token, i in added:  # a gap in the vocabulary would move them
        if library.token_to_id(token) != i:
            raise ValueError(f"the id of {token} is not {i}")
    # published vocabularies may lack bytes that are rare in texts, see
    # `missing_bytes`, but no printable letter
    text = " ".join(map(chr, range(33, 127))) + " The foxes"
    ids = library.encode(text, add_special_tokens=False).ids
    if not data.get("normalizer") and library.decode(ids).strip() != text:
        raise ValueError("it does not give back the letters of a text")


def missing_bytes(data: dict) -> frozenset[int]:
    """Return the bytes that a tokenizer.json silently leaves out of a text."""
    vocab = data["model"]["vocab"]
    byte_level = '"ByteLevel"' in json.dumps(data.get("pre_tokenizer"))
    reports = data["model"].get("unk_token") is not None  # as that token
    if reports or not byte_level or not isinstance(vocab, dict):
        return frozenset()
    return frozenset(b for letter, b in BYTES.items() if letter not in vocab)


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
    """Return whether texts are split, and special tokens found, as there."""
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
    """Return whether just the pairs that make a token are merged, in order."""
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


def checked_messages(messages) -> Iterator[tuple[str, str]]:
    """Yield roles and contents, or raise ValueError."""
    form = '{"role": "user", "content": "Hello"}'
    require(
        isinstance(messages, Iterable)
        and not isinstance(messages, (str, Mapping)),
        f"messages must be a list like [{form}], got {messages!r:.80}",
    )
    messages = list(messages)
    require(messages, f"messages must be a list like [{form}], got none")
    for i, message in enumerate(messages):
        require(
            isinstance(message, Mapping)
            and set(message) == {"role", "content"},
            f"messages[{i}] must be a dict like {form}, got {message!r:.80}",
        )
        role, content = message["role"], message["content"]
        require(
            role in ROLES,
            f"messages[{i}]: role must be one of {', '.join(ROLES)}, got "
            f"{role!r:.80}",
        )
        require(
            isinstance(content, str),
            f"messages[{i}]: content must be a str, got {content!r:.80}",
        )
        yield role, content


def check_text(s) -> None:
    """Raise TypeError unless s is a str, ValueError if UTF-8 cannot hold it."""
    if not isinstance(s, str):
        raise TypeError(f"encode expects a str, got {type(s).__name__}")
    s.encode("utf-8")  # a lone surrogate: UnicodeEncodeError, a ValueError


def check_special(allowed, special_tokens) -> set[str]:
    """Return the allowed names as a set, or raise ValueError."""
    if allowed == "all":
        allowed = special_tokens
    if not isinstance(allowed, Iterable):
        raise ValueError(
            f"allowed_special must be names or 'all', got {allowed!r:.80}"
        )
    allowed = [allowed] if isinstance(allowed, str) else list(allowed)
    known = special_tokens.keys()
    unknown = [n for n in allowed if not isinstance(n, str) or n not in known]
    if unknown:
        raise ValueError(f"allowed_special: {unknown} are no special tokens")
    return set(allowed)


def split_long_runs(s: str, longest: int) -> Iterator[str]:
    """Split `s` so that no run of (non-)whitespace exceeds `longest`."""
    start, runs = 0, re.finditer(r"\S+|\s+", s) if len(s) > longest else ()
    for run in runs:
        for cut in range(run.start() + longest, run.end(), longest):
            yield s[start:cut]
            start = cut
    yield s[start:]
