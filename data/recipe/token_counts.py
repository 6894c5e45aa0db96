"""Count how often the pocket Llama read each token in training.

    python data/recipe/token_counts.py

packs the rows of training again (half a minute, 200 MB) and writes
data/pocket-llama/token_counts.json: a count for each id. A row's last id
counts, too; it is only a target.
"""

import json
from pathlib import Path

import corpus
import train
from evaluate import POCKET
from torch import Tensor

from lessons.texts import pack_rows
from llamalib.tokenizer import Tokenizer

FILE = "token_counts.json"
STEPS = 4000


def training_rows(tokenizer: Tokenizer, steps: int) -> Tensor:
    """Return the rows of ids that training reads, (n, ROW + 1) int64."""
    n = steps * train.BATCH
    texts = corpus.documents("train", 100 * n)
    return pack_rows(texts, tokenizer, n, train.ROW)


def write(folder: Path, rows: Tensor, vocab_size: int) -> None:
    """Write into a folder how often each id occurs in the rows."""
    counts = rows.flatten().bincount(minlength=vocab_size).tolist()
    text = json.dumps(counts, separators=(",", ":"))
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def main(folder: Path = POCKET) -> None:
    tokenizer = Tokenizer.from_file(folder / "tokenizer.model")
    write(folder, training_rows(tokenizer, STEPS), tokenizer.n_words)


if __name__ == "__main__":
    main()
