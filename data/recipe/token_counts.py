"""Count how often the pocket Llama read each token in training.

    python data/recipe/token_counts.py

packs the rows of training again (half a minute, 200 MB) and writes
data/pocket-llama/token_counts.json: a count for each id. A row's last id
counts, too; it is only a target.
"""

import json
from pathlib import Path

import train
from evaluate import POCKET
from torch import Tensor

from llamalib.tokenizer import Tokenizer

FILE = "token_counts.json"


def write(folder: Path, rows: Tensor, vocab_size: int) -> None:
    """Write into a folder how often each id occurs in the rows."""
    counts = rows.flatten().bincount(minlength=vocab_size).tolist()
    text = json.dumps(counts, separators=(",", ":"))
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def main(folder: Path = POCKET) -> None:
    tokenizer = Tokenizer.from_file(folder / "tokenizer.model")
    write(folder, train.training_rows(tokenizer), tokenizer.n_words)


if __name__ == "__main__":
    main()
