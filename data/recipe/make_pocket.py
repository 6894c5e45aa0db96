"""Make the pocket Llama from scratch.

    python data/recipe/make_pocket.py [--out DIR] [--build DIR] [--steps N]

Four stages: train the tokenizer, turn the corpus into rows of ids, train
the model, measure it. The same command continues an interrupted run from
the build folder.
"""

import argparse
import csv
import json
import platform
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import bpe
import corpus
import evaluate
import publish
import seen
import token_counts
import torch
import train

from llamalib import LLAMA_1B, save
from llamalib.load import ROOT
from llamalib.tokenizer import Tokenizer

N_RANKS = 3072
SHAPE = dict(dim=256, n_layers=6, n_heads=8, n_kv_heads=2)  # else the 1B's


def main(argv=None):
    args = parse(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    say("1/4 tokenizer: byte-level BPE on 60,000 documents")
    texts = corpus.documents("tokenizer", 60_000)
    tokenizer = Tokenizer(bpe.train_ranks(texts, N_RANKS))
    config = replace(LLAMA_1B, vocab_size=tokenizer.n_words, **SHAPE)

    say(f"2/4 corpus: {args.steps * train.BATCH * train.ROW:,} tokens")
    rows = train.training_rows(tokenizer, args.steps)

    say(f"3/4 training: {args.steps} steps on {device}")
    args.build.mkdir(parents=True, exist_ok=True)
    llama, log, dtype = train.train(config, rows, args.build, device)

    say("4/4 measuring")
    llama = llama.to("cpu", torch.bfloat16)  # the dtype of the file
    llama.tokenizer = tokenizer
    with tempfile.TemporaryDirectory() as temporary:
        done = Path(temporary) / "checkpoint"
        save(llama, done)
        write_log(done / "training_log.csv", log)
        token_counts.write(done, rows, tokenizer.n_words)
        figures = evaluate.measure(done)
        figures["training"] = {
            "tokens": log[-1][1],
            "minutes": round(log[-1][3] / 60, 1),
            "dtype": str(dtype).removeprefix("torch."),
            "machine": describe_machine(device),
        }
        text = json.dumps(figures, indent=1, ensure_ascii=False)
        (done / "figures.json").write_text(text + "\n", encoding="utf-8")
        shutil.copytree(done, args.out, dirs_exist_ok=True)
    if args.out == evaluate.POCKET:
        evaluate.show_in(ROOT / "data" / "README.md", figures)
        publish.write(publish.measure())
        seen.write(seen.seen_sentences(rows, tokenizer))
    print(evaluate.report(figures))
    (args.build / "state.pt").unlink()  # the next run starts from scratch
    if not any(args.build.iterdir()):
        args.build.rmdir()
    say(f"written to {args.out}")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=evaluate.POCKET)
    add("--build", type=Path, default=ROOT / "data" / "build")
    add("--steps", type=int, default=train.STEPS)
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error(f"--steps is {args.steps}; expected at least 1")
    return args


def describe_machine(device) -> str:
    """Return the kind of machine it was trained on, without its name."""
    if device == "cuda":
        return f"one {torch.cuda.get_device_name()}"
    threads = torch.get_num_threads()
    best = torch.backends.cpu.get_cpu_capability()
    plural = "s" if threads > 1 else ""
    return f"{threads} CPU thread{plural}, {platform.machine()} with {best}"


def say(line):
    print(line, flush=True)


def write_log(path, log):
    with open(path, "w", encoding="utf-8", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(["step", "tokens", "loss", "seconds"])
        for step, tokens, loss, seconds in log:
            writer.writerow([step, tokens, f"{loss:.4f}", f"{seconds:.1f}"])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("\nstopped; the same command continues from the last saved step")
        sys.exit(130)
