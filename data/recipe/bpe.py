"""Train the pocket Llama's tokenizer.

The merges are found by the tokenizers library; `write_ranks` of llamalib
writes them as Llama 3's are written.
"""

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from llamalib.tokenizer import SPLIT_PATTERN
from llamalib.formats.tokenizer_json import to_bytes


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
    ranks = {to_bytes(token): rank for token, rank in bpe.get_vocab().items()}
    if len(ranks) != n_ranks:
        raise ValueError(f"{len(ranks)} tokens found; wanted {n_ranks}")
    return ranks
