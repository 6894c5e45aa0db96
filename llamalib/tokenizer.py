"""Text to token ids and back, with Llama 3's tokenizer, run by tiktoken."""

import base64
import codecs
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import tiktoken

from .checks import check_ids, reject_lookalikes, require
from .dialogues import dialogue_ids

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
    r"""Llama 3's tokenizer, or another that tiktoken can run.

    ranks: token bytes to rank, which is the token's id.
    special_tokens: name to id; None: `SPECIAL_TOKENS` after the ranks.
    pattern: the regular expression that splits a text into pre-tokens.
    n_words: ranks and special tokens.  stop_tokens: ids that end a generation.
    bos_id, eos_id, eot_id, eom_id: None if there is no such token.
    vocab_size: rows of the embedding; ids from n_words on decode to nothing.
    system: the system message of ChatML's dialogues without one.
    Raises ValueError unless the ids are 0 to n_words - 1, each once.
    """

    system = ""

    def __init__(
        self,
        ranks: dict[bytes, int],
        special_tokens: dict[str, int] | None = None,
        *,
        pattern: str = SPLIT_PATTERN,
    ):
        self.ranks, n = ranks, len(ranks)
        self.special_tokens = special_tokens or {
            name: n + i for i, name in enumerate(SPECIAL_TOKENS)
        }
        self.vocab_size = self.n_words = n + len(self.special_tokens)
        ids = sorted([*ranks.values(), *self.special_tokens.values()])
        require(
            ids == list(range(self.n_words)),
            "ranks and special_tokens must have the ids 0 to "
            f"{self.n_words - 1}, each once",
        )
        self._encoding = tiktoken.Encoding(
            "llama3",
            pat_str=pattern,
            mergeable_ranks=ranks,
            special_tokens=self.special_tokens,
        )
        self._missing = {b for b in range(256) if bytes([b]) not in ranks}
        self.bos_id = self.special_tokens.get("<|begin_of_text|>")
        self.eos_id = self.special_tokens.get("<|end_of_text|>")
        self.eot_id = self.special_tokens.get("<|eot_id|>")
        self.eom_id = self.special_tokens.get("<|eom_id|>")
        ends = {self.eos_id, self.eot_id, self.eom_id}
        self.stop_tokens = frozenset(i for i in ends if i is not None)
        if self.eot_id is None:  # ends a text only if the model's files say so
            self.eot_id = self.special_tokens.get("<|im_end|>")

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

        bos, eos: whether to add `<|begin_of_text|>`, `<|end_of_text|>`, if
        texts of this model begin or end with them.
        allowed_special: names in `s` to encode as special tokens, or "all".
        Any other name is plain text, so that a user cannot end the turn.
        Raises TypeError if `s` is not a str, ValueError if UTF-8 cannot hold
        it, a name is not a special token or a byte has no token.
        """
        check_text(s, self._missing)
        allowed = check_special(allowed_special, self.special_tokens)
        ids = present(self.bos_id) if bos else []
        for part in split_long_runs(s, LONGEST_RUN):
            ids += self._encoding.encode(
                part, allowed_special=allowed, disallowed_special=()
            )
        return ids + present(self.eos_id) if eos else ids

    def encode_chat(self, messages: Iterable[Mapping]) -> list[int]:
        r"""Return the ids of a dialogue in an Instruct model's format.

        In Llama 3's, each message is a header with its role, the content and
        `<|eot_id|>`; the header of the answer comes last. `dialogues` has
        ChatML, too. Control tokens come from the format alone: in a message
        their names are plain text.

        messages: each with "role", one of `ROLES`, and "content", a text.
        Raises ValueError for messages or a tokenizer that do not fit.
        Source: Meta's published prompt format of Llama 3.
        """
        return dialogue_ids(self, messages)

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


def present(i: int | None) -> list[int]:
    """Return a list with an id, or without it if there is no such token."""
    return [] if i is None else [i]


def check_text(s, missing: set[int] | frozenset[int] = frozenset()) -> None:
    r"""Raise an error for a text that cannot be encoded.

    TypeError unless s is a str, ValueError if UTF-8 cannot hold it, or for a
    byte without a token: some vocabularies lack rare bytes, and a library
    would leave them out.
    """
    if not isinstance(s, str):
        raise TypeError(f"encode expects a str, got {type(s).__name__}")
    try:
        data = s.encode("utf-8")
    except UnicodeEncodeError as error:  # such as half of a pair
        raise ValueError(
            f"the text is not UTF-8, at position {error.start}: {error.reason}"
        ) from None
    if missing and (lost := missing.intersection(data)):
        raise ValueError(
            f"the tokenizer has no token for the byte 0x{min(lost):02X}, "
            f"which is in {s!r:.80}"
        )


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
