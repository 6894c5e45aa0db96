"""Pictures, widgets and checks of notebook 05."""

import gc
import math
import tracemalloc
from dataclasses import replace
from functools import lru_cache

import ipywidgets as ipw
import torch
import torch.nn.functional as F
from torch import Tensor

from llamalib.model import LLAMA_1B
from llamalib.probe import attention_maps

from . import charts
from .judge import Wrong, close, compare, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
from .theme import GROUPS, heading, panels


def attention_map(ax, weights, labels, kv_head, most=20, size=9, width=2):
    """Draw one head's (T, T) weights, in a frame of its group's colour."""
    image = charts.heatmap(ax, weights, limit=1.0)
    charts.token_ticks(ax, labels, labels, most, size)
    tone = GROUPS[kv_head % len(GROUPS)]
    ax.spines[:].set(visible=True, color=tone, linewidth=width)
    return image


def attention_maps_of(chosen, height=4.2, **options):
    """Draw heads' maps: (title, (T, T) weights, T tokens, KV head) each."""
    fig, axes = panels(height, len(chosen), **options)
    for ax, (name, weights, labels, kv_head) in zip(axes, chosen, strict=True):
        im = attention_map(ax, weights, labels, kv_head)
        if len(labels) <= 12:
            rows = [row[: t + 1] for t, row in enumerate(weights.tolist())]
            texts = [[f"{weight:.2f}" for weight in row] for row in rows]
            charts.cell_texts(ax, texts, (weights > 0.55).tolist())
        charts.finish(ax, name, "key")
    axes[0].set_ylabel("query")
    fig.colorbar(im, ax=axes, label="attention weight", shrink=0.8, aspect=30)
    return fig


def layer_heads(maps, labels, n_kv_heads, name=""):
    """Draw a layer's maps (H, T, T); heads that share a KV head match."""
    H, few = len(maps), len(maps) <= 12
    columns, most, size = (4, 12, 7.5) if few else (8, 7, 5.5)
    rows = -(-H // columns)
    fig, axes = panels(0.9 + rows * 8 / columns, columns, rows)
    for h, ax in enumerate(axes[:H]):
        kv_head = h // (H // n_kv_heads)
        attention_map(ax, maps[h], labels, kv_head, most, size, 2.5)
        style = dict(fontsize=9 if few else 7, weight="bold")
        ax.set_title(f"head {h} · KV {kv_head}", **style)
        bottom = h + columns >= H
        ax.tick_params(labelleft=h % columns == 0, labelbottom=bottom)
    for ax in axes[H:]:
        ax.axis("off")
    heading(fig, name)
    fig.supxlabel("key", fontsize=9)
    fig.supylabel("query", fontsize=9)
    return fig


def sharing(n_heads, kinds):
    """Draw which query head uses which KV head, for each name: KV."""
    fig, axes = panels(1.25 * len(kinds), 1, len(kinds))
    half = min(0.4, 0.4 * 12 / n_heads)
    limits = dict(xlim=(-0.6 - half, n_heads - 0.4 + half), ylim=(-0.45, 1.45))
    for ax, (name, KV) in zip(axes, kinds.items(), strict=True):
        n_rep = n_heads // KV
        for h in range(n_heads):
            at = h // n_rep * n_rep + (n_rep - 1) / 2  # of the KV head
            tone = GROUPS[h // n_rep % len(GROUPS)]
            ax.plot([h, at], [1, 0], color=tone, lw=1.2, zorder=1)
            ax.scatter([h, at], [1, 0], 130, tone, marker="s", zorder=2)
            style = dict(color=charts.ink(tone), weight="bold", zorder=3)
            charts.write(ax, h, 1, str(h), 8, **style)
            if h % n_rep == 0:
                charts.write(ax, at, 0, str(h // n_rep), 8, **style)
        ax.set_yticks([0, 1], [f"{KV} KV", f"{n_heads} query"])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        charts.finish(ax, name, xticks=[], **limits)
    return fig


def recall_loss(divisor, seed, steps=400, rate=1e-3) -> float:
    """Train one head of 64 to recall; return the mean loss of the last steps.

    A text has 16 pairs, each the sum of a question and an answer, drawn from
    32 of each. The query is one of its questions, and the loss is that of its
    answer. Dot products are divided by `divisor`; at the start the components
    of queries and keys have variance 1.
    """
    g = torch.Generator().manual_seed(seed)
    questions, answers = torch.randn(2, 32, 64, generator=g)
    W = torch.randn(4, 64, 64, generator=g) / math.sqrt(64)
    adam = torch.optim.Adam([W.requires_grad_()], lr=rate)
    losses = []
    for _ in range(steps):  # on 32 new texts each
        i = torch.rand(32, 32, generator=g).argsort(-1)[:, :16]
        j = torch.randint(32, (32, 16), generator=g)
        x = (questions[i] + answers[j]) / math.sqrt(2)  # (32, 16, 64)
        # no position enters, so asking for pair 0 is asking for any
        q, k, v = questions[i[:, :1]] @ W[0], x @ W[1], x @ W[2]
        a = (q @ k.mT / divisor).softmax(-1)  # (32, 1, 16)
        logits = (a @ v)[:, 0] @ W[3] @ answers.T / math.sqrt(64)  # (32, 32)
        loss = F.cross_entropy(logits, j[:, 0])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


def heads(llama, text, layer=0, head=0, longest=40) -> Play:
    """Return a browser of attention maps: any text, each layer and head."""
    c = llama.config
    n_rep = c.n_heads // c.n_kv_heads  # query heads in a group

    @lru_cache(maxsize=1)
    def maps_of(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:longest]
        maps = attention_maps(llama, torch.tensor(ids))  # (L, H, T, T)
        return maps, token_texts(llama, ids)

    def draw(text, layer, head):
        (maps, labels), g = maps_of(text), head // n_rep
        name = f"layer {layer}, head {head} · KV head {g}"
        if n_rep > 1:
            name += f", shared by heads {g * n_rep} to {(g + 1) * n_rep - 1}"
        if len(labels) == longest:
            name += f" · the first {longest} tokens"
        panel = (name, maps[layer, head], labels, g)
        return attention_maps_of([panel], margins=(0.16, 0.3, 1.05, 0.93))

    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        layer=ipw.IntSlider(layer, 0, c.n_layers - 1, description="layer"),
        head=ipw.IntSlider(head, 0, c.n_heads - 1, description="head"),
    )


# -- the checks of the exercises --


INF = float("inf")


@exercise(1, "a whole number")
def check_1(answer):
    def of_token(c, n):
        return 2 * c.n_layers * c.n_kv_heads * c.head_dim * n

    def fit(factor=1):  # of the bytes of one token
        return lambda c, free, n: free // (factor * of_token(c, n))

    # with 8 or 16 KV heads two mistakes would give the same number
    L, KV = vary(18, 20, 28, 12), 4
    config = replace(LLAMA_1B, n_layers=L, n_kv_heads=KV)
    factors = {
        "you keep keys and values for every query head": config.n_heads // KV,
        "you take H / KV for KV, the number of KV heads": 32 / KV**2,
        "you count keys or values: both are kept": 1 / 2,
        "you count one layer: each has its own": 1 / L,
        "you count one KV head of n_kv_heads": 1 / KV,
        "you take dim // n_heads; expected head_dim": 1 / 32,
        "you count numbers, not their bytes": 1 / 64,
    }
    mistakes = {words: fit(factor) for words, factor in factors.items()}
    unrounded = lambda c, free, n: free / of_token(c, n)  # noqa: E731
    mistakes["a part of a token does not fit: round down"] = unrounded
    wide = replace(config, head_width=32 * config.head_dim)
    pairs, fits = ((config, 1), (config, 64), (wide, 1)), vary(47, 23, 38, 51)
    cases = [(c, fits * of_token(c, n) - 1, n) for c, n in pairs]
    compare(answer, cases, fit(), mistakes)


def head_with(flaw="", n_rep=1, width=1):
    """Return the function of one head, right or with a flaw."""

    def head(xq, xk, xv, h):
        (T, H, hd), (S, KV, _) = xq.shape, xk.shape
        wrong = {"h // KV": h // KV, "alternate": h % KV}
        wrong["these groups"] = h // n_rep
        g = min(wrong.get(flaw, h // (H // KV)), KV - 1)
        wrong = {"√D": H * hd, "hd": hd * hd, "1": 1, "this hd": width}
        scores = xq[:, h] @ xk[:, g].T / math.sqrt(wrong.get(flaw, hd))
        first = 1 if flaw == "aligned" else S - T + 1
        later = torch.ones(T, S).triu(first).bool()
        if flaw not in ("no mask", "weights"):
            hidden = 0.0 if flaw == "scores" else -INF
            scores = scores.masked_fill(later, hidden)  # (T, S)
        weights = scores.softmax(-2 if flaw == "columns" else -1)
        return (weights * ~later if flaw == "weights" else weights) @ xv[:, g]

    return head


@exercise(2, "a tensor (T, hd)")
def check_2(answer, llama):
    c = llama.config
    own = c.n_heads // c.n_kv_heads, c.head_dim
    flaws = {
        "h // KV": "you divide h by KV; expected KV head h // (H // KV)",
        "alternate": "your heads alternate; neighbours share a KV head",
        "these groups": "this checkpoint's groups: take H and KV from xq, xk",
        "√D": "you divide by √D: a dot product has hd terms",
        "hd": "you divide by hd; expected its square root",
        "1": "you do not divide the scores by √hd",
        "this hd": "you use this checkpoint's hd: take it from xq",
        "no mask": "your tokens see the later ones: the mask is missing",
        "aligned": "your queries are the first T positions, not the last T",
        "scores": "a score set to 0 is not hidden: add -inf",
        "weights": "weights set to 0 after the softmax do not sum to 1",
        "columns": "your columns sum to 1, not your rows",
    }
    mistakes = {words: head_with(f, *own) for f, words in flaws.items()}
    g = draws()
    T, H, KV, hd = vary((6, 12, 6, 10), (5, 15, 5, 14), (7, 14, 7, 6))
    for S in (T, T + 3):
        shapes = (T, H, hd), (S, KV, hd), (S, KV, hd)
        given = [torch.randn(shape, generator=g) for shape in shapes]
        cases = [(*given, h) for h in (H - 1, 1, 0, H // 2, 2 * H // 3)]
        compare(answer, cases, head_with(), mistakes)
    words = "a large score of a later token gets through: hide it by -inf"
    q, k, v = 3 + given[0].tanh(), -3 - given[1].tanh(), given[2]
    q = q * 80 * math.sqrt(hd) / -torch.einsum("thd,sgd->thsg", q, k).min()
    for h in range(H):  # all scores between -80 and about -50
        if not close(answer(q, k, v, h), head_with()(q, k, v, h), 1e-3):
            raise Wrong(words)


def overwritten(k, v, n):
    """Yield keys and values n at a time, always in the same memory."""
    piece = torch.zeros(2, n, k.shape[-1])
    for s in range(0, len(k), n):
        rows = len(k[s : s + n])
        piece[:, :rows] = torch.stack([k[s : s + n], v[s : s + n]])
        yield piece[0, :rows], piece[1, :rows]


def online(flaw=""):
    """Return attention of one query, piece by piece, right or with a flaw."""

    def run(q, k, v, n):
        m, total, mixed = q.new_tensor(0.0 if flaw == "zero" else -INF), 0, 0
        for k_n, v_n in zip(k.split(n), v.split(n), strict=True):
            s = k_n @ q
            if flaw != "no √hd":
                s = s / math.sqrt(len(q))
            new = s.max() if flaw == "own" else torch.maximum(m, s.max())
            if flaw == "first" and m > -INF:
                new = m
            if flaw == "overflow":
                new = 0 * new
            old = (new - m if flaw == "up" else m - new).exp()
            fixed = flaw in ("own", "no factor", "overflow")
            if not fixed and flaw != "sum":
                total = total * old
            if not fixed and flaw != "values":
                mixed = mixed * old
            e, m = (s - new).exp(), new
            total, mixed = total + e.sum(), mixed + e @ v_n
        return mixed / total

    return run


def at_once(q, k, v, n=None):
    return (k @ q / math.sqrt(len(q))).softmax(-1) @ v


def kept(q, k, v, n):  # a list of the pieces holds the last, many times
    pieces = zip(*overwritten(k, v, n), strict=True)
    return at_once(q, *map(torch.cat, pieces))


def averaged(q, k, v, n):
    pairs = zip(k.split(n), v.split(n), strict=True)
    return torch.stack([at_once(q, *pair) for pair in pairs]).mean(0)


@exercise(3, "a tensor (hd,)")
def check_3(answer):
    flaws = {
        "own": "each piece has its own maximum: the sums need one",
        "no factor": "rescale both sums when the maximum grows",
        "sum": "you rescale the values so far, but not the sum",
        "values": "you rescale the sum, but not the values so far",
        "zero": "start the maximum at -inf: all scores may be far below 0",
        "first": "a later piece may have a larger score than the first",
        "overflow": "your exponentials overflow: subtract the largest score",
        "no √hd": "you do not divide the scores by √hd",
        "up": "is your factor upside down? Old sums must shrink",
    }
    mistakes = {"you keep the pieces, but each is overwritten": kept}
    mistakes["you average the pieces: they do not weigh the same"] = averaged
    mistakes |= {words: online(flaw) for flaw, words in flaws.items()}
    g, cases, more = draws(), [], vary(0, 1, 2, 4)
    for S, width, size, n in ((12, 8, 1, 4), (13, 8, 3, 5), (9, 16, 300, 2)):
        k, v = torch.randn(2, S + more, width, generator=g)
        q = torch.randn(width, generator=g)
        if size == 300:  # the first piece's scores are the smallest
            k = k[(k @ q).argsort()]
        size = min(size, vary(size, 90))  # 300 is too coarse in float32
        cases.append((q * size, k, v, n))
    q, k, v, n = cases[0]
    cases.append((0 * q + 300, -k.abs(), v, n))  # all scores far below 0

    def run(q, k, v, n):
        return answer(q, overwritten(k, v, n))

    compare(run, cases, at_once, mistakes, 1e-3)  # large scores are coarse
    k, v = torch.randn(2, 41 + more, 2000, generator=g)
    early, late = [], []  # how many bytes are held by then
    gc.collect()  # of older garbage, whose end would hide what is kept
    tracemalloc.start()
    try:
        answer(k[0], counted(overwritten(k, v, 1), {10: early, 40: late}))
    finally:
        tracemalloc.stop()
    if late[0] - early[0] > 15 * 2000 * 4:
        raise Wrong("you keep what you have read: three sums are enough")
    return "no piece is kept"


def counted(pieces, held):
    """Yield the pieces; at some, note how many bytes are in use.

    Lists and arrays are Python's memory, which tensors are not.
    """
    for i, piece in enumerate(pieces):
        if i in held:
            size = tracemalloc.get_traced_memory()[0]
            kept = [each for each in gc.get_objects() if type(each) is Tensor]
            held[i].append(size + sum(each.nbytes for each in kept))
            del kept
        yield piece
