"""Measure what `python -m llamalib verify` expects of two models.

    python data/recipe/publish.py [FILE.gguf]

writes the entry "pocket-llama" of llamalib/published.json: settings, SHA-256
of the files, and for a few prompts their ids and the greedy continuation, in
float32 on a CPU; of the longest, the loss. With a GGUF file of
SmolLM2-135M-Instruct it writes this model's entry. The ids are then those of
the libraries `tokenizers` and `transformers`, and `transformers` continues.
"""

import hashlib
import json
import re
import sys
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import corpus
import torch
import torch.nn.functional as F
from evaluate import POCKET

from llamalib.checks import read_json
from llamalib.config import params_of
from llamalib.generate import generate
from llamalib.gguf import tokenizer_files
from llamalib.load import load
from llamalib.save import save_hugging_face
from llamalib.verify import PUBLISHED

# A fact, a text that ends in a space, one without a begin token, and a story
# that is long enough for RoPE's scaling to show.
STORIES = sorted(corpus.documents("publish", 300), key=len)[::-1]
PROMPTS = [
    "<|begin_of_text|>The capital of France is",
    "<|begin_of_text|>6 + 7 = ",
    "One summer day, Mira",
    f"<|begin_of_text|>{STORIES[0][:600]}",
]
N = 24  # ids of a continuation
SMOLLM2 = "SmolLM2-135M-Instruct"
# A fact, digits, code, and a dialogue in the model's own format: texts on
# which few near ties are decided by rounding
ENGLISH_PROMPTS = [
    "The capital of France is",
    "2 + 2 = 4. 3 + 3 = 6. 4 + 4 =",
    "def area(width, height):\n    return",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained "
    "by Hugging Face<|im_end|>\n<|im_start|>user\nWhat is the capital of "
    "France?<|im_end|>\n<|im_start|>assistant\n",
]
PAGE = (
    "A river begins as rain. Some of the water sinks into the ground, some "
    "of it evaporates, and the rest runs downhill. It follows the easiest "
    "way. Where the ground is soft, it carries a little of it along. After "
    "many years there is a channel, and after many more there is a valley.\n"
    "In the mountains the river is narrow and fast, and it moves stones as "
    "large as a fist. On the plain it is wide and slow. There it drops the "
    "gravel first, then the sand, and at last the fine mud that makes the "
    "fields fertile. This is why so many old towns stand on rivers. People "
    "found water to drink, soil to plant, and a road that nobody had to "
    "build.\n"
    "The same river could ruin them. In a wet spring it left its bed, filled "
    "the cellars and took the bridge with it. So they made the banks higher. "
    "On the wall of the mill they wrote how high the water had been, and in "
    "which year: 1784, 1845, 1910."
)


def measure(folder=POCKET) -> dict:
    """Return the facts of a checkpoint in Meta's format."""
    llama = load(folder, device="cpu", dtype=torch.float32)
    names = "tokenizer.model", "consolidated.00.pth"
    texts = [continued(llama, prompt) for prompt in PROMPTS]
    tokens = torch.tensor(texts[-1]["prompt_ids"])
    loss = F.cross_entropy(llama(tokens[:-1]), tokens[1:])
    texts[-1]["loss"] = round(loss.item(), 3)
    return {
        "params": read_json(folder / "params.json"),
        "files": {name: sha256(folder / name) for name in names},
        "texts": texts,
    }


def measure_gguf(file: Path) -> dict:
    """Return the facts of a GGUF file, by the transformers library.

    It opens what `convert` writes, in float32.
    """
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    llama = load(file, device="cpu", dtype=torch.float32)
    with TemporaryDirectory() as folder:
        files = tokenizer_files(file, llama.tokenizer)
        save_hugging_face(llama, folder, files)
        theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
        library = AutoTokenizer.from_pretrained(folder)
    texts = []
    for prompt in [*ENGLISH_PROMPTS, PAGE]:
        tokens = library(prompt, return_tensors="pt").input_ids  # (1, T)
        text = {"prompt": prompt, "prompt_ids": tokens[0].tolist(), "ids": []}
        if prompt == PAGE:
            loss = theirs(tokens, labels=tokens).loss
            text["loss"] = round(loss.item(), 3)
        else:
            new = theirs.generate(tokens, max_new_tokens=N, do_sample=False)
            text["ids"] = new[0, tokens.shape[1] :].tolist()
        version = transformers.__version__
        source = f"transformers {version}, float32, {date.today()}"
        texts.append(text | {"source": source})
    return {
        "params": params_of(llama.config),
        "files": {file.name: sha256(file)},
        "texts": texts,
    }


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def continued(llama, prompt: str) -> dict:
    """Return a prompt with its ids and those of its greedy continuation."""
    ids = llama.tokenizer.encode(
        prompt, bos=False, eos=False, allowed_special="all"
    )
    return {
        "prompt": prompt,
        "prompt_ids": ids,
        "ids": list(generate(llama, ids, max_new_tokens=N, stop=())),
        "source": "data/recipe/publish.py, float32",
    }


def write(facts: dict, name=POCKET.name) -> None:
    """Write a model's facts to the published ones, short lists in a line."""
    every = read_json(PUBLISHED) | {name: facts}
    text = json.dumps(every, indent=1, ensure_ascii=False)
    flat = r"([\[{])\s+([^\[\]{}]*)\s([\]}])"  # nothing is nested in it
    text = re.sub(flat, lambda m: m[1] + " ".join(m[2].split()) + m[3], text)
    PUBLISHED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(measure())
    for word in sys.argv[1:]:
        write(measure_gguf(Path(word)), SMOLLM2)
