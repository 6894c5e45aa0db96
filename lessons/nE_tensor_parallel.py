"""Widget, processes and checks of notebook E."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import ipywidgets as ipw
from matplotlib.patches import Rectangle
from torch import arange, as_tensor, randn
from torch.func import functional_call

from llamalib import causal_mask, parallel, precompute_freqs_cis
from llamalib.model import LLAMA_1B
from llamalib.tensors import tensor_shapes

from . import charts, judge
from .judge import Wrong, agree, close, draws, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .theme import COLOURS, canvas


def like_1b(dim, n_layers, n_heads, multiplier, multiple_of):
    """Return the config of another Llama 3."""
    sizes = dict(dim=dim, n_layers=n_layers, n_heads=n_heads)
    sizes |= dict(ffn_dim_multiplier=multiplier, multiple_of=multiple_of)
    return replace(LLAMA_1B, **sizes, rope_scaling_factor=None)


MODELS = {  # Llama 3.2 and 3.1
    "1B": LLAMA_1B,
    "8B": like_1b(4096, 32, 32, 1.3, 1024),
    "70B": like_1b(8192, 80, 64, 1.3, 4096),
}
MATRICES = [f"attention.w{name}" for name in "qkvo"]  # as they are used
MATRICES += [f"feed_forward.w{i}" for i in (1, 3, 2)]


def in_parts(llama, tokens, n, ranks=None):
    """Return the logits (T, V) that parts of a model compute together.

    Each has a process's part of each block's matrices, as
    `llamalib.parallel` cuts them for n processes; the vocabulary is whole.
    Only the parts in `ranks` work, None: all.
    """
    c, w, T = llama.config, llama.state_dict(), len(tokens)
    angles = c.head_dim, T, c.rope_theta, c.scaling_factor
    given = precompute_freqs_cis(*angles), causal_mask(T)
    ranks = range(n) if ranks is None else ranks

    def own(name, rank):
        cut = parallel.part(c, name, w[name].shape, rank=rank, n=n)
        return w[name].narrow(cut[0], cut[1], cut[2] - cut[1])

    def add(name, *args):
        module, total = llama.get_submodule(name), 0
        keys = [key for key, _ in module.named_parameters()]
        for rank in ranks:
            mine = {key: own(f"{name}.{key}", rank) for key in keys}
            total = total + functional_call(module, mine, args)
        return total

    x = llama.tok_embeddings(tokens)  # (T, D)
    for i, block in enumerate(llama.layers):
        u = block.attention_norm(x)
        x = x + add(f"layers.{i}.attention", u, *given)
        x = x + add(f"layers.{i}.feed_forward", block.ffn_norm(x))
    return llama.output(llama.norm(x))


# A script that begins with it notes the bytes of each tensor that is sent.
COUNT = """
import torch.distributed as dist

sent = dict(all_reduce=[], all_gather=[])


def count(name):
    call = getattr(dist, name)

    def counted(*tensors):  # the last one is sent
        sent[name].append(tensors[-1].nbytes)
        return call(*tensors)

    setattr(dist, name, counted)


count("all_reduce")
count("all_gather")
"""


# What a process prints goes to a file of its own: lines do not mix.
OWN_FILE = """
import os, sys
sys.stdout = open(__file__ + os.environ["RANK"], "w", encoding="utf-8")
"""


# torchrun needs libuv, which PyTorch's builds for Windows lack
HAS_TORCHRUN = os.name != "nt"


def torchrun(n, script, *arguments) -> str:
    """Run a script in n processes; return what they print, by rank."""
    with socket.socket() as free:  # a port that is free now
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as made:
        file = Path(made, "script.py")
        file.write_text(OWN_FILE + script, encoding="utf-8")
        command = [str(file), *map(str, arguments)]
        if HAS_TORCHRUN:
            run = ["-m", "torch.distributed.run", "--rdzv-backend=static"]
            run += ["--master-addr=127.0.0.1", f"--master-port={port}"]
            run += [f"--nproc-per-node={n}", *command]
            wait_for({start(run, file): file})
        else:  # what it tells each process
            told = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            told |= dict(WORLD_SIZE=n, LOCAL_WORLD_SIZE=n)
            errors = [Path(f"{file}{rank}") for rank in range(n)]
            wait_for(
                {
                    start(command, each, RANK=i, LOCAL_RANK=i, **told): each
                    for i, each in enumerate(errors)
                }
            )
        files = [Path(f"{file}{rank}") for rank in range(n)]
        return "".join(each.read_text(encoding="utf-8") for each in files)


def start(command, file, **variables):
    """Start a Python whose errors go to a file beside this one."""
    own = dict(LLAMA_DEVICE="cpu", OMP_NUM_THREADS="1", PYTHONUTF8="1")
    own |= {name: str(value) for name, value in variables.items()}
    how = dict(env=os.environ | own, stdout=subprocess.DEVNULL)
    with open(f"{file}.errors", "wb") as errors:
        command = [sys.executable, *command]
        return subprocess.Popen(command, stderr=errors, **how)


def wait_for(processes) -> None:
    """Wait until all end; end them and raise RuntimeError if one fails."""
    try:
        codes = [None]
        while None in codes and not any(codes):  # all would wait for one
            time.sleep(0.02)
            codes = [each.poll() for each in processes]
        for each, file in processes.items():
            if each.returncode:
                said = Path(f"{file}.errors").read_text("utf-8", "replace")
                raise RuntimeError(said[-2000:])
    finally:
        for each in processes:
            each.kill()
            each.wait()


def block_parts(config, part, rank, n, title):
    """Draw the matrices of a block to scale, a rank's part of each filled.

    Where results are added over the processes, "sum" is written.
    part: from config, name, rank and n to (dimension cut, start, length).
    """
    fig, ax = canvas(3.6)
    shapes, x = tensor_shapes(config), 0
    gap, tall = config.dim * 0.35, config.hidden_dim
    for name in MATRICES:
        name = f"layers.0.{name}.weight"
        rows, columns = shapes[name]
        dim, start, length = part(config, name, rank, n)
        at, size = [x, 0], [columns, rows]
        at[1 - dim], size[1 - dim] = start + (0 if dim == 0 else x), length
        style = dict(fc="#eeeeee", ec=COLOURS["plain"], lw=0.8)
        ax.add_patch(Rectangle((x, 0), columns, rows, **style))
        ax.add_patch(Rectangle(at, *size, fc=COLOURS["probability"]))
        label = f"{name.split('.')[3]}\n{rows:,} × {columns:,}"
        charts.write(ax, x + columns / 2, -0.1 * tall, label, 7)
        x += columns + gap
        if dim == 1:  # what follows
            charts.write(ax, x, rows / 2, "sum", 10, fontweight="bold")
            x += 2 * gap
    ax.set(xlim=(-gap, x), ylim=(1.02 * tall, -0.2 * tall), aspect="equal")
    ax.axis("off")
    return charts.finish(ax, title)


def cuts(models, part) -> Play:
    """Return a widget: what a rank holds of a block of each model.

    models: name to config.  part: see `block_parts`.
    """

    def draw(model, n, rank):
        if rank >= n:
            raise ValueError(f"the last of {n} processes has rank {n - 1}")
        c = models[model]
        if c.n_heads % n:
            raise ValueError(f"{n} does not divide {c.n_heads} query heads")
        title = f"{model}, one block: the part of rank {rank} of {n}"
        return block_parts(c, part, rank, n, title)

    sizes = dict(options=[1, 2, 4, 8, 16], value=4, description="processes")
    return Play(
        draw,
        model=ipw.Dropdown(options=list(models), value=list(models)[-1]),
        n=ipw.SelectionSlider(**sizes),
        rank=ipw.IntSlider(1, 0, 15, description="rank"),
    )


# -- the checks of the exercises --


@exercise(1, expects="numbers (T, D)")
def check_1(partial_result):
    g, (T, F, D) = draws(1), vary((4, 12, 5), (3, 24, 7), (6, 18, 4))
    h, W = randn(T, F, generator=g), randn(D, F, generator=g)
    b, y, other = randn(D, generator=g), h @ W.T, h + (arange(F) < F // 2)
    every = {}
    for n in (3, 2, 1):
        parts = every[n] = [partial_result(h, W, b, r, n) for r in range(n)]
        mistakes = [
            ("b is missing" if n > 1 else "with n = 1 b is missing", y),
            ("the sum has b n times: each process adds it", y + n * b),
            ("each process computes all of y", n * (y + b)),
            ("each process computes the whole product", n * y + b),
        ]
        shapes = {tuple(as_tensor(part).shape) for part in parts}
        if any(len(s) == 2 and s[0] == T and s[1] < D for s in shapes):
            raise Wrong("(T, D/n): W is cut by rows; cut its columns")
        same = shapes == {y.shape}
        found = sum(map(as_tensor, parts if same else parts[:1]))
        agree(found, y + b, mistakes, what="the sum")
    new, whole = partial_result(other, W, b, 1, 2), (other @ W.T) / 2
    words = "each process computes the whole product, divided by n"
    mistakes = [(words, whole + share) for share in (b / 2, 0 * b, b)]
    moves = (as_tensor(new) - as_tensor(new)[:1]).abs().amax(0) > 1e-4
    if moves.any() and not moves.all():
        raise Wrong("W is cut by rows, into outputs: cut its columns")
    what = "with other numbers in process 0's columns, process 1's result"
    agree(new, every[2][1], mistakes, what=what)
    for n, parts in every.items():
        pairs = zip(h.chunk(n, 1), W.chunk(n, 1), strict=True)
        for r, (part, (x, w)) in enumerate(zip(parts, pairs, strict=True)):
            rest = as_tensor(part) - x @ w.T  # its share of b, in each row
            if not close(rest, rest[:1].expand_as(rest), 1e-4):
                what = f"process {r} of {n} must return its columns' product"
                raise Wrong(f"{what}, with a share of b or without")


@exercise(2, expects="a list of whole numbers")
def check_2(held_kv_heads):
    cases, more = {}, vary(1, 3, 2, 5)
    for sizes in ((8, 32, 8), (2, 8, 4), (8, 8, 2), (2, 6, 3), (4, 12, 6)):
        n, H, KV = (more * each for each in sizes)
        for r in reversed(range(n)):
            cases[f"({r}, {n}, {H}, {KV}): the result"] = r, n, H, KV
    judge.alike(held_kv_heads, "E_tensor_parallel", 2, cases, tolerance=0)
