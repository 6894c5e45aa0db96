"""Make the pocket Llama from scratch.

    python data/recipe/make_pocket.py [--out DIR] [--build DIR] [--steps N]

Four stages: train the tokenizer, turn the corpus into rows of ids, train
the model, measure it. The same command continues an interrupted run from
the build folder.
"""

import argparse
import csv
import hashlib
import json
import platform
import shutil
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import bpe  # noqa: E402
import corpus  # noqa: E402
import evaluate  # noqa: E402
import publish  # noqa: E402
import train  # noqa: E402

from lessons.texts import pack_rows  # noqa: E402
from llamalib import ModelArgs  # noqa: E402
from llamalib.save import save  # noqa: E402
from llamalib.tokenizer import Tokenizer, write_ranks  # noqa: E402

OUT = ROOT / "data" / "pocket-llama"
STEPS = 4000
N_RANKS = 3072
SHAPE = dict(
    dim=256,
    n_layers=6,
    n_heads=8,
    n_kv_heads=2,
    multiple_of=256,
    ffn_dim_multiplier=1.5,
    norm_eps=1e-5,
    rope_theta=500000.0,
    use_scaled_rope=True,
)


def main(argv=None):
    args = parse(argv)
    args.build.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    say("1/4 tokenizer: byte-level BPE on 60,000 documents")
    tokenizer_file = args.build / "tokenizer.model"
    texts = corpus.documents("tokenizer", 60_000)
    write_ranks(tokenizer_file, bpe.train_ranks(texts, N_RANKS))
    tokenizer = Tokenizer.from_file(tokenizer_file)
    config = ModelArgs(vocab_size=tokenizer.n_words, **SHAPE)

    n_rows = args.steps * train.BATCH
    say(f"2/4 corpus: {n_rows * train.ROW:,} tokens")
    texts = corpus.documents("train", 100 * n_rows)
    rows = pack_rows(texts, tokenizer, n_rows, train.ROW)
    same_recipe(args.build, config, rows)

    say(f"3/4 training: {args.steps} steps on {device}")
    llama, log, dtype = train.train(config, rows, args.build, device)

    say("4/4 measuring")
    llama = llama.to("cpu", torch.bfloat16)  # the dtype of the file
    done = args.build / "checkpoint"
    llama.tokenizer = tokenizer
    save(llama, done)
    write_log(done / "training_log.csv", log)
    figures = evaluate.measure(done)
    figures["training"] = {
        "tokens": log[-1][1],
        "minutes": round(log[-1][3] / 60, 1),
        "dtype": str(dtype).removeprefix("torch."),
        "machine": describe_machine(device),
    }
    text = json.dumps(figures, indent=1, ensure_ascii=False)
    (done / "figures.json").write_text(text + "\n", encoding="utf-8")
    args.out.mkdir(parents=True, exist_ok=True)
    for file in sorted(done.iterdir()):
        shutil.copy2(file, args.out)
    if args.out == OUT:
        evaluate.show_in(ROOT / "data" / "README.md", figures)
        publish.write(publish.measure())
    print(evaluate.report(figures))
    clear(args.build)  # the next run starts from scratch
    say(f"written to {args.out}")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=OUT)
    add("--build", type=Path, default=ROOT / "data" / "build")
    add("--steps", type=int, default=STEPS)
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
    return f"{threads} CPU threads, {platform.machine()} with {best}"


def clear(build):
    """Remove the recipe's files, and the folder if it is empty then."""
    for name in ("state.pt", "recipe.sha256", "tokenizer.model"):
        (build / name).unlink()
    shutil.rmtree(build / "checkpoint")
    if not any(build.iterdir()):
        build.rmdir()


def say(line):
    print(line, flush=True)


def same_recipe(build, config, rows):
    """Exit if the build folder holds an unfinished run of another recipe."""
    recipe = hashlib.sha256(rows.numpy().tobytes())
    recipe.update(repr((config, train.PEAK_LR, train.BATCH)).encode())
    mark = build / "recipe.sha256"
    if (build / "state.pt").exists() and (
        not mark.exists() or mark.read_text() != recipe.hexdigest()
    ):
        raise SystemExit(
            f"{build} holds an unfinished run of another recipe. To start "
            f"again, remove it: rm -r {build}"
        )
    mark.write_text(recipe.hexdigest())


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
