"""Find the sentences of the held-out texts that training has read, too.

    python data/recipe/seen.py

writes them to seen_sentences.json: those that occur, word for word, in the
rows on which the pocket Llama was trained. This takes about 20 seconds.
"""

import json
import re
from pathlib import Path

import train
from evaluate import POCKET

from llamalib.tokenizer import Tokenizer

HERE = Path(__file__).parent
SEEN = HERE / "seen_sentences.json"
SENTENCES = r"(?<=[.!?])(?= )|(?<=\n)"  # cut before a space, after a newline


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without white space around them."""
    parts = (part.strip() for part in re.split(SENTENCES, text))
    return [part for part in parts if part]


def seen_sentences(rows, tokenizer) -> list[str]:
    """Return the held-out texts' sentences that occur in rows of ids.

    They are in the order of the texts, each once. A sentence that a row's
    end cuts off does not count.
    """
    texts = json.loads((HERE / "held_out.json").read_text(encoding="utf-8"))
    asked = dict.fromkeys(s for text in texts for s in sentences(text))
    specials = "|".join(map(re.escape, tokenizer.special_tokens))
    found = set()
    for row in rows.tolist():
        for document in re.split(specials, tokenizer.decode(row)):
            found |= asked.keys() & sentences(document)
    return [sentence for sentence in asked if sentence in found]


def write(found: list[str], file: Path = SEEN) -> None:
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    tokenizer = Tokenizer.from_file(POCKET / "tokenizer.model")
    write(seen_sentences(train.training_rows(tokenizer), tokenizer))
