r"""Text to token ids and back: byte-level BPE, run by tiktoken."""

import base64
import binascii
import codecs
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import tiktoken

from .files import reject_lookalikes

# Where a text may be cut before any merging: contractions; a word with at
# most one leading mark or space; up to three digits; marks; line ends; space.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)

# The 256 control tokens that follow the mergeable ranks, as the published
# tokenizer files of Llama 3.1 and 3.2 name them. (Llama 3 left places 4, 8
# and 10 reserved; Meta's later code names place 5 step_id and 11 image.)
_RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(248)]
SPECIAL_TOKENS = (
    ["<|begin_of_text|>", "<|end_of_text|>"]
    + _RESERVED[:2]
    + ["<|finetune_right_pad_id|>", _RESERVED[2]]
    + ["<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"]
    + ["<|python_tag|>"]
    + _RESERVED[3:]
)

# who may speak in a dialogue; ipython is what a tool answers
ROLES = ("system", "user", "assistant", "ipython")

# A run of a million spaces is more than the stack of tiktoken's regular
# expressions holds. Runs longer than this are cut (Meta's code cuts them at
# 25,000); a text with none has exactly the ids that tiktoken gives it whole.
LONGEST_RUN = 200_000


def read_ranks(path) -> dict[bytes, int]:
    r"""The mergeable ranks of a tokenizer.model in tiktoken's format.

    Each line is a token's bytes in base64, a space, and its rank. (Not read
    with tiktoken's own `load_tiktoken_bpe`: that keeps a copy by file name,
    and goes on giving the old one when the file changes.)

    Raises:
        ValueError: naming the file, the line and what is wrong with it.
    """
    path = Path(path)
    reject_lookalikes(path)
    data = path.read_bytes()
    if is_sentencepiece(data):
        raise ValueError(
            f"{path} is a SentencePiece model, as of Llama 1 and 2; wanted "
            "the tokenizer.model of Llama 3, lines like 'IQ== 0'"
        )
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        try:
            token, rank = line.split()
            token, rank = base64.b64decode(token, validate=True), int(rank)
        except (ValueError, binascii.Error):
            raise ValueError(
                f"{path}, line {number}: {line[:40]!r} is not a token in "
                "base64, a space and a rank; take the tokenizer.model that "
                "came with the weights"
            ) from None
        if token in ranks or rank != len(ranks):
            raise ValueError(
                f"{path}, line {number}: rank {rank} of {token!r}; wanted "
                f"rank {len(ranks)} and a token not seen before. The file "
                "is damaged: take the one that came with the weights"
            )
        ranks[token] = rank
    missing = [b for b in range(256) if bytes([b]) not in ranks]
    if missing:
        raise ValueError(
            f"{path} has no token for {len(missing)} of the 256 bytes; "
            "it is cut short or not a byte-level tokenizer"
        )
    return ranks


def is_sentencepiece(start: bytes) -> bool:
    """Whether a file that begins so is a SentencePiece model."""
    return start[:1] == b"\n" or b"<unk>" in start[:64]


def write_ranks(path, ranks: dict[bytes, int]) -> None:
    """What `read_ranks` reads."""
    lines = [
        base64.b64encode(token) + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
    ]
    Path(path).write_bytes(b"".join(lines))


class Tokenizer:
    r"""Llama 3's tokenizer.

    Args:
        ranks: token bytes to rank, 0 … n-1; all 256 single bytes among them.
        special_tokens: name to id; None: `SPECIAL_TOKENS` after the ranks.

    Attributes:
        ranks, special_tokens: bytes, and names, to id.
        bos_id, eos_id, eot_id, eom_id: begin of text, end of text, end of
            turn, end of message.
        stop_tokens: the ids that end a generation.
        n_words: ranks and special tokens together.
        vocab_size: rows of the embedding, as many, or more: a model may have
            rows that are no token's, and decode to nothing.
    """

    def __init__(self, ranks: dict[bytes, int], special_tokens=None):
        self.ranks, n = ranks, len(ranks)
        self.special_tokens = special_tokens or {
            name: n + i for i, name in enumerate(SPECIAL_TOKENS)
        }
        self.n_words = n + len(self.special_tokens)
        self.vocab_size = self.n_words
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
        r"""Token ids of a text.

        Args:
            s: any text that can be written in UTF-8.
            bos: put `<|begin_of_text|>` before it.
            eos: put `<|end_of_text|>` after it.
            allowed_special: names of special tokens that, where they stand
                in `s`, become control tokens; "all" for all of them. All
                others are plain text, so that a user's text cannot end the
                turn.

        Raises:
            TypeError: if `s` is not a str.
            ValueError: for a lone surrogate, which no UTF-8 can hold, and
                for a name that is no special token.
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
        r"""A dialogue as an Instruct model was trained to read it.

        Each message stands behind a header with its role, and ends with
        `<|eot_id|>`; at the end stands the header of the answer, which the
        model goes on from. Control tokens come from this format alone: in a
        message their names are plain text.

        Args:
            messages: each with "role", one of `ROLES`, and "content", a text;
                spaces around it do not count.

        Raises:
            ValueError, TypeError: naming the message, what was found and what
                is wanted.

        Source: Meta's published prompt format of Llama 3.
        """
        ids = [self.bos_id]
        for role, content in checked_messages(messages):
            ids += self._header(role)
            ids += self.encode(content.strip(), bos=False, eos=False)
            ids.append(self.eot_id)
        return ids + self._header("assistant")

    def _header(self, role: str) -> list[int]:
        """Who speaks: <|start_header_id|>role<|end_header_id|>, two lines."""
        known = self.special_tokens
        text = partial(self.encode, bos=False, eos=False)
        start, end = known["<|start_header_id|>"], known["<|end_header_id|>"]
        return [start, *text(role), end, *text("\n\n")]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, one after another."""
        ids = checked_ids(ids, self.vocab_size)
        tokens = [i for i in ids if i < self.n_words]
        return self._encoding.decode_bytes(tokens)

    def decode(self, ids: Iterable[int]) -> str:
        r"""The text of the tokens.

        Bytes that are not UTF-8, as in half an emoji, become U+FFFD;
        control tokens come out as their names.

        Raises:
            ValueError: for an id outside the vocabulary.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        r"""The text as it grows: one piece a token, no character split.

        A token that ends inside a character gives "" and the character
        comes with the token that ends it.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for i in ids:
            yield decoder.decode(self.decode_bytes([i]))
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest


def checked_messages(messages) -> list[tuple[str, str]]:
    """Roles and contents, or ValueError or TypeError."""
    wanted = 'wanted a list like [{"role": "user", "content": "Hello"}]'
    if isinstance(messages, (str, Mapping)) or not messages:
        raise ValueError(f"messages are {str(messages)[:60]!r}; {wanted}")
    found = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(
                f"messages[{i}] is {str(message)[:60]!r}; {wanted}"
            )
        if set(message) != {"role", "content"}:
            keys = ", ".join(map(str, message)) or "nothing"
            raise ValueError(f"messages[{i}] has {keys}; {wanted}")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise ValueError(
                f"messages[{i}]: role is {role!r}; wanted one of "
                f"{', '.join(ROLES)}"
            )
        if not isinstance(content, str):
            raise TypeError(
                f"messages[{i}]: content is a {type(content).__name__}; "
                "wanted a str"
            )
        found.append((role, content))
    return found


def checked_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """The ids as ints, or ValueError for one outside the vocabulary."""
    ids = [int(i) for i in ids]
    for i in ids:
        if not 0 <= i < vocab_size:
            raise ValueError(
                f"token id {i} is not in the vocabulary; wanted 0 to "
                f"{vocab_size - 1}"
            )
    return ids


def check_text(s) -> None:
    """TypeError unless it is a str, ValueError unless UTF-8 can hold it."""
    if not isinstance(s, str):
        raise TypeError(f"a {type(s).__name__} to encode; wanted a str")
    try:
        s.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is the lone surrogate "
            f"{s[error.start]!r}, which UTF-8 cannot hold; mend it with "
            "s.encode('utf-8', 'replace').decode()"
        ) from None


def check_special(allowed, special_tokens) -> set[str]:
    """The names that `encode` is given, or ValueError."""
    if allowed == "all":
        allowed = special_tokens
    elif isinstance(allowed, str):
        allowed = [allowed]
    allowed = set(allowed)
    if not allowed <= special_tokens.keys():
        names = ", ".join(sorted(allowed - special_tokens.keys()))
        raise ValueError(f"no special tokens: {names}")
    return allowed


def split_long_runs(s: str, longest: int) -> Iterator[str]:
    """Cut `s` only inside runs of over `longest` spaces or non-spaces."""
    start = 0
    if len(s) <= longest:
        yield s
        return
    for run in re.finditer(r"\S+|\s+", s):
        for cut in range(run.start() + longest, run.end(), longest):
            yield s[start:cut]
            start = cut
    yield s[start:]
