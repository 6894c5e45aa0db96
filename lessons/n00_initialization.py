"""Pictures, widgets and checks of notebook 00."""

import functools
import json
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path

import ipywidgets as ipw
import torch
import torch.nn.functional as F

from llamalib.generate import generate
from llamalib.hugging_face import SETTINGS, weight_files
from llamalib.model import LLAMA_1B, causal_mask, precompute_freqs_cis
from llamalib.probe import record, text_loss
from llamalib.tensors import shard_axis, tensor_shapes

from .charts import figure_legend, finish, ink, note, write
from .exercises import versions
from .judge import Wrong, agree, alike, as_tensor, close, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import COLOURS, array, canvas, colour, heading, panels, plain

# Where a parameter is, in the order data flows, and its colour.
PLACES = {
    "embedding": "token",
    "attention": "attention",
    "feed-forward": "feed-forward",
    "norms": "other",
    "output": "probability",
}
PLACE_OF = {"tok_embeddings": "embedding", "output": "output"}
PLACE_OF |= dict.fromkeys(("wq", "wk", "wv", "wo"), "attention")
PLACE_OF |= dict.fromkeys(("w1", "w2", "w3"), "feed-forward")
# The published settings of larger Llamas, and whether they are tied.
_8B = dict(dim=4096, n_layers=32, ffn_dim_multiplier=1.3, multiple_of=1024)
_70B = dict(_8B, dim=8192, n_layers=80, n_heads=64, multiple_of=4096)
_3B = dict(dim=3072, n_layers=28, n_heads=24, ffn_dim_multiplier=1.0)
LARGER = {
    "Llama 3.2-3B": (replace(LLAMA_1B, **_3B), True),
    "Llama 3.1-8B": (replace(LLAMA_1B, **_8B), False),
    "Llama 3.1-70B": (replace(LLAMA_1B, **_70B), False),
}


def shares(models):
    """Draw the share of each place, by model: name to (config, tied)."""
    fig, ax = canvas(0.95 + 0.45 * len(models))
    rows = range(len(models))[::-1]
    for row, (config, tied) in zip(rows, models.values(), strict=True):
        counts = by_place(config, tied)
        left, total = 0.0, sum(counts.values())
        for place, count in counts.items():
            share, tone = 100 * count / total, colour(PLACES[place])
            ax.barh(row, share, 0.7, left, color=tone, label=place)
            if share >= 4:
                text = f"{share:.1f} %"
                write(ax, left + share / 2, row, text, color=ink(tone))
            left += share
        write(ax, 101, row, f"{total / 1e6:,.1f} M", ha="left")
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_yticks(rows, [plain(name) for name in models])
    label = "share of the parameters in percent; at the right, how many"
    finish(ax, "", label, xlim=(0, 113), xticks=range(0, 101, 25))
    return figure_legend(fig, "outside upper center")


def by_place(config, tied) -> dict[str, int]:
    """Return how many parameters each place has; a tied output has none."""
    counts = dict.fromkeys(PLACES, 0)
    for name, shape in tensor_shapes(config).items():
        part = name.split(".")[-2]  # such as wq
        place = PLACE_OF.get(part, "norms")
        if part != "output" or not tied:
            counts[place] += prod(shape)
    return {place: n for place, n in counts.items() if n}


# -- the files --


def list_files(*places: Path) -> None:
    """Print the three kinds of file in each folder, or a GGUF file."""
    kinds = "params.json", "config.json", "*.safetensors", "consolidated.*.pth"
    kinds += "tokenizer.model", "tokenizer.json"
    for place in {each.resolve(): each for each in places}.values():
        found = [place]
        if place.is_dir():
            found = [f for kind in kinds for f in sorted(place.glob(kind))]
            print(f"{place.name}/")
        for file in found:
            print(f"{file.name:34} {file.stat().st_size:>13,} bytes")


def tensors_in(place: Path) -> dict[str, tuple]:
    """Return the tensors that files name: name to (shape, kind of number).

    The names are the file's own. A GGUF file's factors of scaled RoPE are
    left out: they are settings.
    """
    if place.is_file():  # ggml's package takes a while to import
        from llamalib.gguf import ROPE_FREQS, open_file

        found = open_file(place).tensors
        return {
            each.name: (
                tuple(each.shape[::-1].tolist()),
                each.tensor_type.name,
            )
            for each in found
            if each.name != ROPE_FREQS
        }
    if (place / SETTINGS).is_file():
        return {
            name: (tuple(each["shape"]), each["dtype"])
            for file in weight_files(place)
            for name, each in safetensors_header(file).items()
            if not name.endswith("rotary_emb.inv_freq")  # in older files
        }
    shards = sorted(place.glob("consolidated.*.pth"))
    first = torch.load(shards[0], "cpu", mmap=True, weights_only=True)
    found = {}
    for name, tensor in first.items():
        shape, axis = list(tensor.shape), shard_axis(name)
        if axis is not None:  # each shard has an equal part
            shape[axis] *= len(shards)
        found[name] = tuple(shape), str(tensor.dtype).removeprefix("torch.")
    return found


def safetensors_header(file: Path) -> dict[str, dict]:
    """Return what a safetensors file says of each tensor.

    It begins with 8 bytes, the length of the JSON that follows.
    """
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    return header


# -- parts that are off --

# What a block can lose: the module whose output becomes 0
PARTS = {
    "attention off": lambda block: block.attention,
    "attention uniform": lambda block: block.attention.wq,
    "network off": lambda block: block.feed_forward,
}


@contextmanager
def silent(module) -> Iterator[None]:
    """Make a module return zeros, while the context is open."""
    hook = module.register_forward_hook(lambda module, args, out: 0 * out)
    try:
        yield
    finally:
        hook.remove()


@torch.inference_mode()
def without_parts(llama, text: str) -> dict[str, list[float]]:
    """Return by part how the loss changes without it, in each block.

    The blocks before are not run again: nothing changes in them.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    tokens, c = torch.tensor(ids, device=llama.device), llama.config
    args = c.head_dim, len(ids), c.rope_theta, c.scaling_factor
    table = precompute_freqs_cis(*args).to(llama.device)
    mask = causal_mask(len(ids), device=llama.device)
    seen, usual = record(llama, tokens), text_loss(llama, text)
    found = {part: [] for part in PARTS}
    for i, block in enumerate(llama.layers):
        for part, module in PARTS.items():
            x = seen[f"layers.{i}.in"][None]  # (1, T, D)
            with silent(module(block)):
                for later in llama.layers[i:]:
                    x = later(x, table, mask)
            logits = llama.output(llama.norm(x))[0].float()  # (T, V)
            loss = F.cross_entropy(logits[:-1], tokens[1:]).item()
            found[part].append(loss - usual)
    return found


def changes(rows):
    """Draw the change of the loss without a part: name to L numbers."""
    fig, axes = panels(4.2, 1, len(rows), sharex=True, sharey=True)
    highest = max(map(max, rows.values()))
    for ax, (name, values) in zip(axes, rows.items(), strict=True):
        kind = "feed-forward" if name.startswith("network") else "attention"
        ax.bar(range(len(values)), array(values), color=COLOURS[kind])
        ax.axhline(0, color=COLOURS["other"], lw=0.6)
        for block, value in enumerate(values):
            if value >= 1:
                note(ax, block, value, f"{value:.1f}", ha="center", fontsize=9)
        ticks = range(0, len(values), 1 + len(values) // 16)
        finish(ax, name, xticks=ticks, ylim=(min(-0.5, -0.05 * highest), None))
    top = 1.2 * highest
    axes[0].set_ylim(top=top)
    finish(axes[-1], next(reversed(rows)), "block")
    fig.supylabel("change of the loss, nats per token", fontsize=10)
    return heading(fig, "One part of one block is switched off")


def silenced(llama, prompt: str) -> Play:
    """Return a choice of a block's part, and what the model writes without."""
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)

    @functools.cache
    def written(part: str, block: int) -> str:
        module = PARTS[part](llama.layers[block]) if part in PARTS else None
        with silent(module) if module else nullcontext():
            new = list(generate(llama, ids, max_new_tokens=18))
        return llama.tokenizer.decode(new)

    def draw(part, block):
        texts = {"as it is": written("nothing", 0)}
        if part in PARTS:
            texts[f"block {block}: {part}"] = written(part, block)
        return two_texts(prompt, texts)

    last = llama.config.n_layers - 1
    slider = dict(description="block", continuous_update=False)
    return Play(
        draw,
        part=ipw.Dropdown(
            options=["nothing", *PARTS],
            value="network off",
            description="switch off",
        ),
        block=ipw.IntSlider(0, 0, last, **slider),
    )


def two_texts(prompt, texts):
    """Write what a model makes of a prompt, by what is switched off."""
    fig, ax = canvas(1.7)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.axis("off")
    tops = 0.95, 0.42
    for top, (name, text) in zip(tops, texts.items(), strict=False):
        style = dict(ha="left", va="top")
        write(ax, 0, top, plain(name), 10, weight="bold", **style)
        whole = (prompt + text).replace("\n", "⏎")
        lines = textwrap.wrap(whole, 100, max_lines=2, placeholder=" …")
        write(ax, 0, top - 0.14, plain("\n".join(lines)), 10, **style)
    return fig


# -- the checks of the exercises --


def models():
    """Return a tiny model, the 1B and the 8B, or in a hidden check others."""
    k = vary(1, 2, 3, 5)
    one = replace(LLAMA_1B, dim=2048 * k, n_layers=15 + k)
    more = dict(n_layers=31 + k, ffn_dim_multiplier=1.3, multiple_of=1024)
    tiny = dict(dim=8 * k, n_layers=11 + k, vocab_size=9 + k)
    # its heads are wider than dim / n_heads
    tiny |= dict(n_heads=2 * k, n_kv_heads=2, head_width=8)
    tiny = replace(one, **tiny)
    return tiny, one, replace(one, dim=4096 * k, **more)


STEM = "00_initialization"


def alike_dicts(answer, number, cases) -> None:
    """Compare as `alike` does; else name the first key that is wrong."""
    try:
        alike(answer, STEM, number, cases, tolerance=0)
    except Wrong as wrong:
        if "expected another dict" not in str(wrong):
            raise
        solution, _ = versions(STEM, number)
        for case in cases:
            found, right = answer(*case), solution(*case)
            keys = [*right, *found] if isinstance(found, dict) else []
            for key in keys:
                if not close(found.get(key), right.get(key), 0):
                    words = f"{str(key)[:80]!r} is missing or wrong"
                    if key not in right:
                        words = f"no key {str(key)[:80]!r} is expected"
                    raise Wrong(words) from None
        raise


@exercise(1, expects="a dict with a number for each part")
def check_1(answer):
    cases = [(tensor_shapes(each),) for each in models()[:2]]
    alike_dicts(answer, 1, cases)
    return f"the {len(answer.last)} parts of the 1B"


@exercise(2, expects="a dict of five numbers")
def check_2(answer):
    tiny, one, larger = models()
    alike_dicts(answer, 2, [(tensor_shapes(c),) for c in (one, larger, tiny)])
    return "the settings of the 1B, the 8B and a tiny model"


@exercise(3, expects="a whole number")
def check_3(answer):
    cases = list(budgets())
    found = [answer(*case) for case in cases]
    for each in found:
        if (number := as_tensor(each)) is None or number.dim():
            agree(each, 0)
        if number < 0:
            raise Wrong("fewer than no layers; expected 0 if none fits")
    alike(answer, STEM, 3, cases, tolerance=0)
    if any(isinstance(each, float) for each in found):
        raise Wrong("the numbers are right; expected them as int")
    return f"{len(cases)} budgets"


def budgets():
    """Yield (config, bytes, dtype, tied): just enough, a byte less, more."""
    for c, tied in zip(models(), (False, True, False), strict=True):
        for dtype in (torch.bfloat16, torch.float32):
            yield c, 0, dtype, tied
            for n_layers in vary((1, 2, 7, 33), (2, 5, 8, 21), (3, 1, 17, 4)):
                layer, around = weigh(c, 2 - tied)
                exact = (n_layers * layer + around) * dtype.itemsize
                norm = c.dim * dtype.itemsize
                short = exact - n_layers * norm  # a norm a layer is left out
                for budget in (exact - 1, exact, exact + layer, short):
                    yield c, budget, dtype, tied


@cache
def weigh(c, matrices: int) -> tuple[int, int]:
    """Return the parameters of a layer, and of what is around the layers."""
    shapes = tensor_shapes(replace(c, n_layers=1)).items()
    layer = sum(prod(s) for name, s in shapes if name.startswith("layers."))
    return layer, (matrices * c.vocab_size + 1) * c.dim
