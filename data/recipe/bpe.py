"""Train the pocket Llama's tokenizer and write it as Llama 3's is written.

The merges are found by the tokenizers library; what is written is tiktoken's
format: a line for each token, its bytes in base64 and its rank.
"""

import base64

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from llamalib.tokenizer import SPLIT_PATTERN


def byte_alphabet():
    """The letter that the library writes for each byte, as a dict."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    odd = [b for b in range(256) if b not in plain]
    letters = {chr(b): b for b in plain}
    return letters | {chr(256 + i): b for i, b in enumerate(odd)}


def train_ranks(texts, n_ranks: int) -> dict[bytes, int]:
    """Byte-level BPE: bytes of a token to its rank, 256 bytes first."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=n_ranks,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    letters = byte_alphabet()
    ranks = {
        bytes(letters[letter] for letter in token): rank
        for token, rank in bpe.get_vocab().items()
    }
    if len(ranks) != n_ranks:
        raise ValueError(f"{len(ranks)} tokens found; wanted {n_ranks}")
    return ranks


def write_ranks(path, ranks: dict[bytes, int]):
    lines = [
        base64.b64encode(token) + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
    ]
    path.write_bytes(b"".join(lines))
