"""Train the pocket Llama's tokenizer.

The tokenizers library finds the merges; llamalib's `write_ranks` writes
them in the format of Llama 3's file.
"""

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from llamalib.hugging_face import to_bytes
from llamalib.tokenizer import SPLIT_PATTERN


def train_ranks(texts, n_ranks: int) -> dict[bytes, int]:
    """Return the rank of each token's bytes, by byte-level BPE."""
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
        raise ValueError(f"found {len(ranks)} tokens; expected {n_ranks}")
    return ranks
