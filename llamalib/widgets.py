r"""Things to play with: the only file that imports ipywidgets.

Every function returns a `Play`: controls over a picture that follows them
(`stream`: over a text that grows). It opens with something to see, and where
no kernel runs, in a saved notebook or on a web page, its first picture or
text stands for it.
"""

import base64
import cmath
import functools
import gc
import html
import math
import threading

import ipywidgets as ipw
import torch
import torch.nn.functional as F

from . import plots
from .experiment import replaced
from .experts import route
from .feed_forward import feed_forward
from .generate import generate
from .model import attention_maps
from .normalization import rms_norm
from .sampling import next_token_probs


class Play(ipw.VBox):
    r"""Controls, and under them the picture that they draw.

    Args:
        draw: called with the controls' values by name; returns a figure.
        controls: name to ipywidgets control, shown in this order.

    Attributes:
        controls: as given: `play.controls["layer"].value = 2` is what a
            reader's hand does.
        picture: an ipywidgets Image, PNG.
        message: an HTML line, where `draw` raised a ValueError: what it says.
    """

    def __init__(self, draw, **controls):
        self.draw, self.controls = draw, controls
        self.picture = ipw.Image(format="png", layout={"max_width": "100%"})
        self.message = ipw.HTML()
        for control in controls.values():
            control.style.description_width = "initial"
            control.layout.width = "90%"
            control.layout.max_width = "620px"
            control.observe(self._changed, "value")
        super().__init__([*controls.values(), self.message, self.picture])
        self.update()

    def update(self) -> None:
        """Draw with the controls' values as they are now."""
        values = {name: c.value for name, c in self.controls.items()}
        collecting = gc.isenabled()
        gc.disable()  # a collection takes longer than a picture: after it
        try:
            fig = self.draw(**values)
            self.message.value = ""
            self.picture.value = plots.png(fig)
        except ValueError as error:  # the picture before stays
            self.message.value = html.escape(str(error))
        finally:
            if collecting:
                gc.enable()

    def _changed(self, change):
        self.update()

    def __repr__(self) -> str:
        values = (f"{n}={c.value!r}" for n, c in self.controls.items())
        return f"Play({', '.join(values)})"

    def _repr_mimebundle_(self, **kwargs):
        """The live widget, and a still picture where there is no kernel."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        still = base64.b64encode(self.picture.value).decode()
        return bundle | {"image/png": still, "text/plain": repr(self)}


def log_slider(description: str, value: float, low: int, high: int):
    """A slider over powers of ten, from 10^low to 10^high."""
    return ipw.FloatLogSlider(
        value=value,
        min=low,
        max=high,
        step=0.1,
        description=description,
        readout_format=".1e",
    )


# -- 00 initialization ----------------------------------------------------

EXACT = 2**20  # a tensor of more numbers is described by a sample
SAMPLE = 2**18  # of as many


def tensors(llama) -> Play:
    r"""A browser of a model's tensors: shape, figures, histogram.

    A tensor of more than `EXACT` numbers is described by a seeded sample.

    Args:
        llama: a Llama.

    Returns:
        a Play of `name`, a tensor's name, and `log`, whether the counts
        stand on a logarithmic scale, which shows the rare large numbers.
    """
    weights = llama.weights()
    total = sum(weight.numel() for weight in llama.parameters())

    @functools.cache
    def figures(name):
        """Mean, std, min, max, counts and borders, and how many numbers."""
        flat = weights[name].detach().flatten()  # (n,)
        if len(flat) > EXACT:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(len(flat), (SAMPLE,), generator=generator)
            flat = flat[drawn.to(flat.device)]  # (SAMPLE,)
        flat = flat.float().cpu()
        std = flat.std(correction=0).item()
        ends = [end.item() for end in flat.aminmax()]
        if ends[0] == ends[1]:  # a histogram needs some width
            ends = [ends[0] - 0.5, ends[1] + 0.5]
        counts = flat.histc(60, *ends)  # (60,)
        edges = torch.linspace(*ends, 61)  # (61,)
        smallest, largest = flat.aminmax()
        limits = smallest.item(), largest.item()
        return flat.mean().item(), std, *limits, counts, edges, len(flat)

    def draw(name, log):
        if name not in weights:
            raise ValueError(
                f"{name!r} is no tensor of this model; wanted one of its "
                f"{len(weights)}, such as 'norm.weight'"
            )
        weight = weights[name]
        mean, std, low, high, counts, edges, n = figures(name)
        share = 100 * weight.numel() / total
        shape = " × ".join(str(size) for size in weight.shape)
        dtype = str(weight.dtype).removeprefix("torch.")
        lines = [
            f"{shape} {dtype}, {share:.3g} % of the parameters",
            f"mean {round(mean, 4) + 0:.4f}, std {std:.4f}, "
            f"from {low:.3f} to {high:.3f}",
        ]
        if n < weight.numel():
            lines.append(f"figures of {n:,} of its numbers, drawn at random")
        if name == "output.weight" and llama.tied:
            lines.append("the same numbers as tok_embeddings.weight")
        spreads, layer = (), None
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            layer = int(layer)
            spreads = [
                figures(f"layers.{i}.{part}")[1]
                for i in range(llama.config.n_layers)
            ]
        fig = plots.tensor_card(name, lines, counts, edges, spreads, layer)
        if log:
            fig.axes[0].set_yscale("log")
        return fig

    first = "layers.0.attention.wq.weight"
    return Play(
        draw,
        name=ipw.Dropdown(options=list(weights), value=first),
        log=ipw.Checkbox(value=False, description="logarithmic counts"),
    )


# -- 01 tokenize ----------------------------------------------------------


MOST_TOKENS = 40  # drawn at once; the rest of a long text is counted


def tokens(llama, text: str = "Hello, llama! 你好 🦙") -> Play:
    r"""A text, and the tokens that the checkpoint's tokenizer cuts it into.

    Controls: `text`; `special`: whether names such as `<|eot_id|>` in the
    text become control tokens.

    Args:
        llama: its tokenizer is used.
        text: to begin with.
    """
    t = llama.tokenizer
    control = set(t.special_tokens.values())

    def draw(text, special):
        allowed = "all" if special else ()
        ids = t.encode(text, bos=False, eos=False, allowed_special=allowed)
        some = ids[:MOST_TOKENS]
        return plots.token_boxes(
            [t.decode([i]) for i in some],
            some,
            [None if i in control else t.decode_bytes([i]) for i in some],
            f"{len(text):,} characters · {len(text.encode()):,} bytes · "
            f"{len(ids):,} tokens: text, id, bytes"
            if ids
            else "no text, no tokens: write something",
            left_out=len(ids) - len(some),
        )

    return Play(
        draw,
        text=ipw.Textarea(text, description="text", rows=3),
        special=ipw.Checkbox(
            description="names of special tokens become control tokens"
        ),
    )


# -- 02 embed -------------------------------------------------------------


def nearest(llama, token: str = " France", n: int = 12) -> Play:
    r"""A token, and the tokens whose rows of the embedding point its way.

    Args:
        llama: any Llama with its tokenizer.
        token: to start with; where it is several tokens, its last one.
        n: bars to draw.

    Controls: `token`, the text of one token (a special token by its name),
    or # and an id; `centre`, to take the mean row off every row first.
    """
    table = llama.tok_embeddings.weight.detach()  # (V, D)
    mean = table.mean(0)  # (D,)
    off = table @ mean  # (V,)
    norms = table.norm(dim=1)  # (V,)
    # |w - m|^2 = |w|^2 - 2 w.m + |m|^2: no second table is held
    centred = (norms**2 - 2 * off + mean @ mean).clamp(min=0).sqrt()
    decode = llama.tokenizer.decode

    def draw(token, centre):
        i = _one_id(llama.tokenizer, token)
        # V products of D numbers, never V times V
        if centre:
            row = table[i] - mean  # (D,)
            cosines = (table @ row - mean @ row) / (centred * row.norm())
        else:
            cosines = table @ table[i] / (norms * norms[i])  # (V,)
        cosines = cosines.nan_to_num().float().cpu()  # a row of zeros: 0
        cosines[i] = -2  # not itself
        top = cosines.topk(min(n, len(cosines) - 1))
        names = [decode([j]) for j in top.indices.tolist()]
        every = cosines[cosines > -2].numpy()
        return plots.nearest(decode([i]), names, top.values.tolist(), every)

    last = llama.tokenizer.encode(token, bos=False, eos=False)[-1:]
    return Play(
        draw,
        token=ipw.Text(
            decode(last),
            description="token, or # and an id",
            continuous_update=False,
        ),
        centre=ipw.Checkbox(
            False, description="take the mean row off first", indent=False
        ),
    )


def _one_id(tokenizer, text: str) -> int:
    """The id that a reader asks for, as "#" and digits or as a text."""
    if text.startswith("#") and text[1:].isdecimal():
        if int(text[1:]) >= tokenizer.n_words:
            raise ValueError(
                f"id {int(text[1:])} is not in the vocabulary; wanted 0 to "
                f"{tokenizer.n_words - 1}"
            )
        return int(text[1:])
    ids = tokenizer.encode(text, bos=False, eos=False, allowed_special="all")
    if len(ids) != 1:
        names = ", ".join(f"{tokenizer.decode([i])!r} (#{i})" for i in ids)
        raise ValueError(
            f"{text!r} is {len(ids)} tokens, not one: {names or 'none'}. "
            "Most words are one token only with a space before them."
        )
    return ids[0]


# -- 03 rmsnorm -----------------------------------------------------------


def norm(llama, ids) -> Play:
    r"""One token's embedding, scaled, then normalized with a chosen ε.

    Args:
        llama: whose embeddings.
        ids: a prompt's token ids.
    """
    vectors = llama.weights()["tok_embeddings.weight"][ids].float().cpu()
    texts = [llama.tokenizer.decode([i]) for i in ids]
    sizes = torch.logspace(-6, 3, 120)

    def draw(token, scale, epsilon):
        x = scale * vectors[token]  # (D,)
        y = rms_norm(x, torch.ones_like(x), epsilon)  # (D,)
        point = [float(v.pow(2).mean().sqrt()) for v in (x, y)]
        heading = f"{texts[token]!r}: RMS {point[0]:.3g} to {point[1]:.3g}"
        curve = sizes / (sizes**2 + epsilon).sqrt()
        return plots.norm_bars(x[:24], y[:24], sizes, curve, point, heading)

    return Play(
        draw,
        token=ipw.Dropdown(
            options=[(f"{i}: {t!r}", i) for i, t in enumerate(texts)],
            value=len(ids) - 1,
            description="token",
        ),
        scale=log_slider("scale of the vector", 1.0, -4, 2),
        epsilon=log_slider("ε", 1e-5, -8, 1),
    )


# -- 04 rope --------------------------------------------------------------


THETAS = (100, 1000, 10_000, 100_000, 500_000, 10_000_000)


def rotation(llama, prompt: str = "The capital of France is") -> Play:
    r"""Turn one pair of a query: by its position, its number, the base.

    The query is that of the prompt's last token, layer 0, head 0.

    Args:
        prompt: a text of one token or more.

    Raises:
        ValueError: inside the picture, for a position under 0.
    """
    c, w = llama.config, llama.state_dict()
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    x = w["tok_embeddings.weight"][ids[-1]].float()  # (D,)
    x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)
    wq = w["layers.0.attention.wq.weight"][: c.head_dim]  # (hd, D)
    query = (wq.float() @ x.float()).unflatten(0, (-1, 2)).cpu()  # (hd/2, 2)

    def draw(position, pair, theta):
        if position < 0:
            raise ValueError(f"the position is {position}; wanted 0 or more")
        frequency = theta ** (-2 * pair / c.head_dim)
        angle = position * frequency
        before = torch.view_as_complex(query)[pair].item()
        after = before * cmath.rect(1, angle)
        # at most six waves, with the position in their middle
        wave = math.tau / frequency
        span = min(6 * wave, max(16, 2 * position))
        start = max(0, position - span / 2)
        along = [start + span * i / 400 for i in range(401)]
        cosines = [math.cos(m * frequency) for m in along]
        return plots.turned(
            (before.real, before.imag),
            (after.real, after.imag),
            position,
            angle,
            (along, cosines),
            f"pair {pair}: a turn in {wave:,.1f} positions",
        )

    return Play(
        draw,
        position=ipw.IntSlider(5, 0, 4096, description="position m"),
        pair=ipw.IntSlider(
            min(1, c.head_dim // 2 - 1),
            0,
            c.head_dim // 2 - 1,
            description="pair k",
        ),
        theta=ipw.SelectionSlider(
            options=THETAS, value=500_000, description="base θ"
        ),
    )


# -- 05 attention ---------------------------------------------------------


def heads(llama, ids, layer: int = 0, head: int = 0):
    r"""Browse the attention maps of a text: choose a layer and a head.

    The maps are computed once, when the widget is made.

    Args:
        llama: the model.
        ids: T token ids.
        layer, head: what it opens with.
    """
    maps = attention_maps(llama, torch.tensor(ids))  # (L, H, T, T)
    labels = [llama.tokenizer.decode([i]) for i in ids]
    n_rep = llama.config.n_rep

    def draw(layer, head):
        kv_head = head // n_rep
        group = range(kv_head * n_rep, (kv_head + 1) * n_rep)
        name = f"layer {layer}, head {head} · KV head {kv_head}"
        if n_rep > 1:
            name += f", shared by heads {group[0]} to {group[-1]}"
        panel = (name, maps[layer, head], labels, kv_head)
        return plots.attention_maps_of([panel])

    L, H = maps.shape[:2]
    return Play(
        draw,
        layer=ipw.IntSlider(layer, 0, L - 1, description="layer"),
        head=ipw.IntSlider(head, 0, H - 1, description="head"),
    )


# -- 06 feed_forward ------------------------------------------------------


def neurons(llama, text):
    r"""A browser of neurons: which tokens of a text open each.

    Args:
        llama: a Llama with its tokenizer.
        text: what the model reads behind `<|begin_of_text|>`; of a long one
            the first 100 tokens, so that every bar can be seen.

    Returns:
        a Play with the sliders `layer` and `neuron`, which count from 0, and
        `order`: neurons by number, or the selective first, those whose
        largest activation is most times their mean. It opens with the middle
        layer and the neuron that is most active at any token but the first.

    Raises:
        ValueError: for a text without a token.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)[:100]
    if len(ids) < 2:
        raise ValueError(f"the text {text!r} has no token; wanted some words")
    labels = [llama.tokenizer.decode([i]) for i in ids]
    gates, activations = _neuron_activations(llama, ids)  # (L, T, F) each
    n_layers, _, n_neurons = gates.shape
    sizes = activations[:, 1:].abs()  # (L, T - 1, F)
    layer = n_layers // 2
    neuron = sizes[layer].amax(0).argmax().item()
    selective = sizes.amax(1) / sizes.mean(1).clamp(min=1e-9)  # (L, F)
    ranked = selective.argsort(dim=-1, descending=True).tolist()

    def draw(layer, neuron, order):
        if order == "selective first":
            neuron = ranked[layer][neuron]
        return plots.neuron_on_text(
            labels,
            activations[layer, :, neuron].tolist(),
            gates[layer, :, neuron].tolist(),
            f"layer {layer}, neuron {neuron}",
        )

    return Play(
        draw,
        layer=ipw.IntSlider(layer, 0, n_layers - 1, description="layer"),
        neuron=ipw.IntSlider(neuron, 0, n_neurons - 1, description="neuron"),
        order=ipw.Dropdown(
            options=["by number", "selective first"], description="order"
        ),
    )


def _neuron_activations(llama, ids):
    """Gate, and gate times content, of every neuron: (L, T, F) each."""
    gates, activations = [], []

    def noting(x, w1, w2, w3):
        gate = F.silu(F.linear(x, w1))  # (1, T, F)
        activation = gate * F.linear(x, w3)  # (1, T, F)
        gates.append(gate[0].float().cpu())
        activations.append(activation[0].float().cpu())
        return F.linear(activation, w2)  # (1, T, D)

    with torch.no_grad(), replaced(feed_forward=noting):
        llama(torch.tensor(ids, device=llama.device), last_only=True)
    return torch.stack(gates), torch.stack(activations)


# -- 07 lm_head -----------------------------------------------------------


LONGEST_PROMPT = 64  # tokens: keeps an answer under a fifth of a second


def next_token(llama, prompt: str = "The capital of France is") -> Play:
    r"""Type a prompt, see the likeliest next tokens.

    Args:
        llama: with its tokenizer.
        prompt: to open with; may be empty: `<|begin_of_text|>` alone.

    Returns:
        a Play of `prompt` and `bars`, how many tokens are shown. Of a long
        prompt the last tokens are read, and the title says so.
    """

    def draw(prompt, bars):
        ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
        said = f"{prompt} …" if len(prompt) < 60 else f"… {prompt[-60:]} …"
        said = plots.legible(said)
        if len(ids) > LONGEST_PROMPT:
            said += (
                f" (its last {LONGEST_PROMPT - 1} of {len(ids) - 1} tokens)"
            )
            ids = ids[:1] + ids[1 - LONGEST_PROMPT :]
        tokens = torch.tensor(ids, device=llama.device)  # (T,)
        with torch.inference_mode():
            logits = llama(tokens, last_only=True)[-1]  # (V,)
        top = logits.softmax(-1).topk(min(bars, len(logits)))
        labels = [llama.tokenizer.decode([i]) for i in top.indices.tolist()]
        return plots.next_token_bars(labels, top.values.tolist(), said)

    # a model too slow to follow the typing waits for the end of the line
    small = sum(p.numel() for p in llama.parameters()) < 100_000_000
    return Play(
        draw,
        prompt=ipw.Text(prompt, continuous_update=small),
        bars=ipw.IntSlider(10, 3, 15),
    )


# -- 08 sampling ----------------------------------------------------------


def sampling(llama, text: str) -> Play:
    r"""Temperature, top-k and top-p over the live distribution.

    The logits are computed once for each text. Temperature 0 is greedy; k = 0
    and p = 1 leave their step out.

    Args:
        llama: a Llama with a tokenizer.
        text: the prompt that it opens with.
    """
    known = {}

    def last_logits(text):
        if text not in known:
            ids = llama.tokenizer.encode(text, bos=True, eos=False)
            tokens = torch.tensor(ids, device=llama.device)  # (T,)
            with torch.inference_mode():
                row = llama(tokens, last_only=True)[-1]  # (V,)
            known.clear()
            known[text] = row, torch.softmax(row.float(), dim=-1)
        return known[text]

    def draw(text, temperature, k, p):
        row, before = last_logits(text)
        if temperature == 0:
            after = torch.zeros_like(before)
            after[row.argmax()] = 1
        else:
            after = next_token_probs(row, temperature, k or None, p)
        top = before.topk(min(11, len(before))).indices
        shapes = {}
        for name, probs in (("as it is", before), ("reshaped", after)):
            kept = f"{(probs > 0).sum():,} of {len(probs):,} tokens"
            nats = torch.special.entr(probs).sum()
            shapes[f"{name}: {kept}, {nats:.2f} nats"] = (
                bars(before, top),
                bars(probs, top),
            )
        return plots.reshaped(
            [llama.tokenizer.decode([i]) for i in top.tolist()],
            shapes,
            f"{len(before) - len(top):,} others",
            f"{text} …",
        )

    def bars(probs, top):
        others = probs.index_fill(0, top, 0).sum()  # 0 where all are cut
        return [*probs[top].tolist(), others.item()]

    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        temperature=ipw.FloatSlider(
            value=0.7, min=0, max=3, step=0.05, description="temperature"
        ),
        k=ipw.IntSlider(
            value=0, min=0, max=50, description="k (0: every token)"
        ),
        p=ipw.FloatSlider(
            value=0.9, min=0.05, max=1, step=0.05, description="p (1: off)"
        ),
    )


# -- 09 generate ----------------------------------------------------------


class Stream(ipw.VBox):
    r"""A prompt, and its continuation as it grows; it can be stopped.

    Args:
        llama: continues the prompt.
        prompt: to begin with; continued at once, so that there is something
            to see.
        max_new_tokens: the most that are given.

    Attributes:
        prompt, temperature: the controls.
        go, stop: the buttons.
        text: an HTML area with the prompt and what has come so far.
        thread: what generates, while it does; join it to wait.
    """

    def __init__(self, llama, prompt: str, max_new_tokens: int):
        self.llama, self.max_new_tokens = llama, max_new_tokens
        self.prompt = ipw.Text(prompt, description="prompt")
        self.temperature = ipw.FloatSlider(
            0.0, min=0.0, max=2.0, step=0.1, description="temperature"
        )
        for control in (self.prompt, self.temperature):
            control.style.description_width = "initial"
            control.layout.width = "90%"
            control.layout.max_width = "620px"
        self.go = ipw.Button(description="continue", icon="play")
        self.stop = ipw.Button(description="stop", icon="stop", disabled=True)
        self.text, self._stopped = ipw.HTML(), threading.Event()
        self.go.on_click(lambda button: self.start())
        self.stop.on_click(lambda button: self._stopped.set())
        buttons = ipw.HBox([self.go, self.stop])
        super().__init__([self.prompt, self.temperature, buttons, self.text])
        self.start()
        self.thread.join()
        self.still = self.text.value

    def start(self) -> None:
        """Begin to continue the prompt as it stands now."""
        self._stopped.clear()
        self.go.disabled, self.stop.disabled = True, False
        # in a thread of its own: the kernel stays free to hear the button
        self.thread = threading.Thread(
            target=self._run, args=(self.prompt.value, self.temperature.value)
        )
        self.thread.start()

    def _run(self, prompt, temperature):
        tokenizer, said = self.llama.tokenizer, ""
        try:
            new = generate(
                self.llama,
                tokenizer.encode(prompt, bos=True, eos=False),
                max_new_tokens=self.max_new_tokens,
                temperature=temperature,
            )
            self._show(prompt, said)
            for piece in tokenizer.decode_stream(new):
                if self._stopped.is_set():
                    break
                said += piece
                self._show(prompt, said)
        except ValueError as error:
            self._show(prompt, f" [{error}]")
        finally:
            self.go.disabled, self.stop.disabled = False, True

    def _show(self, prompt, said):
        """The prompt in grey, what was said in black."""
        self.text.value = (
            '<div style="white-space: pre-wrap; max-width: 620px">'
            f'<span style="color: #777777">{html.escape(prompt)}</span>'
            f"{html.escape(said)}</div>"
        )

    def __repr__(self) -> str:
        return f"Stream(prompt={self.prompt.value!r})"

    def _repr_mimebundle_(self, **kwargs):
        """The live widget, and its first text where there is no kernel."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        return bundle | {"text/html": self.still, "text/plain": repr(self)}


def stream(
    llama,
    prompt: str = "The capital of France is",
    max_new_tokens: int = 120,
) -> Stream:
    r"""A box for a prompt, which is continued token by token.

    Args:
        llama: continues it.
        prompt: to begin with.
        max_new_tokens: the most that are given.
    """
    return Stream(llama, prompt, max_new_tokens)


# -- A training ------------------------------------------------------------


def training(llama, snapshots, ids, head=(0, 0)) -> Play:
    r"""A training, step by step: what was written, expected, looked at.

    Args:
        llama: the model that was trained; its tokenizer has the words.
        snapshots: Snapshots in the order of their steps.
        ids: the T ids of the text that they were taken on.
        head: layer and head to open with.

    Returns:
        a Play of `step`, which opens with the last, and `head`.
    """
    labels = [llama.tokenizer.decode([i]) for i in ids]
    shots = {shot.step: shot for shot in snapshots}
    L, H = snapshots[0].maps.shape[:2]
    heads = [
        (f"layer {layer}, head {h}", (layer, h))
        for layer in range(L)
        for h in range(H)
    ]

    def draw(step, head):
        shot = shots[step]
        top = shot.probs.topk(min(8, len(shot.probs)))
        layer, h = head
        return plots.snapshot(
            f"step {step}: loss {shot.loss:.2f}, held out {shot.held:.2f}",
            shot.sample,
            [llama.tokenizer.decode([i]) for i in top.indices.tolist()],
            top.values,
            shot.maps[layer, h],
            labels,
            f"where layer {layer}, head {h} looks",
        )

    return Play(
        draw,
        step=ipw.SelectionSlider(
            options=list(shots), value=snapshots[-1].step, description="step"
        ),
        head=ipw.Dropdown(
            options=heads, value=tuple(head), description="head"
        ),
    )


# -- B quantization --------------------------------------------------------

SHOWN = 48  # numbers of a row that can be told apart
ROWS_SHOWN = 256  # of a matrix, for its errors


def quantization(llama) -> Play:
    r"""A matrix at fewer bits: its first row, and all errors.

    Args:
        llama: a Llama.

    Returns:
        a Play of `name`, a matrix; `bits` for each number; `g`, how many
        numbers share a scale, of which a row's rest may be fewer: 0 stands
        for a row. Errors are those of the matrix's first 256 rows.
    """
    weights = {n: w for n, w in llama.weights().items() if w.dim() == 2}

    def draw(name, bits, g):
        w = weights[name][:ROWS_SHOWN].detach().float().cpu()  # (M, K)
        kept = kept_at(w, bits, g or w.shape[1])  # (M, K)
        lost = ((kept - w).norm() / w.norm()).item()
        return plots.quantized_row(
            w[0, :SHOWN],
            kept[0, :SHOWN],
            w.flatten(),
            (kept - w).flatten(),
            f"error {100 * lost:.2g} % of the matrix",
        )

    return Play(
        draw,
        name=ipw.Dropdown(
            options=list(weights),
            value="layers.0.attention.wq.weight",
            description="matrix",
        ),
        bits=ipw.IntSlider(4, 2, 8, description="bits"),
        g=ipw.Dropdown(
            options=[("a row", 0), ("128", 128), ("32", 32), ("8", 8)],
            value=0,
            description="numbers to a scale",
        ),
    )


def kept_at(w, bits: int, g: int):
    """What is kept of (M, K) floats, at g numbers to a scale."""
    top, K = 2 ** (bits - 1) - 1, w.shape[-1]
    # zeros behind the row's rest: they set no scale
    groups = F.pad(w, (0, -K % g)).unflatten(-1, (-1, g))  # (M, n, g)
    scale = groups.abs().amax(dim=-1, keepdim=True) / top  # (M, n, 1)
    scale = torch.where(scale > 0, scale, 1)
    kept = (groups / scale).round() * scale  # (M, n, g)
    return kept.flatten(-2)[:, :K]  # (M, K)


# -- C mixture_of_experts --------------------------------------------------


MOST_ROUTED = 110  # tokens: as many as the picture holds


def routing(llama, runs, text: str, top_k: int = 2) -> Play:
    r"""A text, and the experts to which a router gives its tokens.

    The text runs through the model as it is; the routers look at what the
    feed-forward network of their layer is given there.

    Args:
        llama: with its tokenizer.
        runs: name of a run to (layer, steps, routers): S ints, and the
            router after each of them, (S, E, D).
        text: to begin with; of a long one the first tokens are read.
        top_k: k, the experts of a token.

    Returns:
        a Play of `text`, `run` and `stage`, from 0 to S - 1.
    """
    known = {}

    def inputs(text):
        """Token texts, and (L, T, D): each layer's network's input."""
        if text not in known:
            ids = llama.tokenizer.encode(text, bos=True, eos=False)
            ids, seen, own = ids[:MOST_ROUTED], [], feed_forward

            def noting(x, w1, w2, w3):
                seen.append(x[0])  # (T, D)
                return own(x, w1, w2, w3)

            with torch.no_grad(), replaced(feed_forward=noting):
                tokens = torch.tensor(ids, device=llama.device)
                llama(tokens, last_only=True)
            known.clear()
            labels = [llama.tokenizer.decode([i]) for i in ids]
            known[text] = labels, torch.stack(seen)
        return known[text]

    def draw(text, run, stage):
        labels, x = inputs(text)
        layer, steps, routers = runs[run]
        weights, chosen, logits = route(x[layer], routers[stage], top_k)
        shares = torch.zeros_like(logits).scatter(-1, chosen, weights.float())
        said = f"{run}, after {steps[stage]} of {steps[-1]} steps"
        return plots.routing(labels, shares.cpu(), said)

    stages = {len(steps) for _, steps, _ in runs.values()}
    if len(stages) != 1:
        raise ValueError(
            f"the runs have {sorted(stages)} stages; wanted as many in each"
        )
    last = stages.pop() - 1
    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        run=ipw.Dropdown(options=list(runs), description="run"),
        stage=ipw.IntSlider(last, 0, last, description="stage of training"),
    )


# -- D long_context --------------------------------------------------------


def longer(freqs, trained: int, choices, as_it_is, known=None) -> Play:
    r"""A way to a longer text, and a factor: wavelengths and loss.

    Nothing is run: what is shown was measured before.

    Args:
        freqs: (hd/2,) of the model as it is, radians a position.
        trained: the length it was trained at.
        choices: (way, factor) to ((hd/2,) frequencies, positions, losses).
        as_it_is: (positions, losses) without any change.
        known: name to (positions, losses) of lines to compare with; or None.

    Returns:
        a Play of `way` and `factor`.
    """
    ways = list(dict.fromkeys(way for way, _ in choices))
    factors = sorted({factor for _, factor in choices})
    before = math.tau / freqs  # (hd/2,)

    def draw(way, factor):
        slowed, *line = choices[way, factor]
        lines = [(f"trained: {trained:,}", trained)]
        lines.append(
            (f"{factor} times: {factor * trained:,}", factor * trained)
        )
        along = {"as it is": as_it_is, way: line} | (known or {})
        heading = f"{way}, factor {factor}"
        return plots.stretched(
            before, math.tau / slowed, along, lines, heading
        )

    return Play(
        draw,
        way=ipw.Dropdown(options=ways, value=ways[-1], description="way"),
        factor=ipw.SelectionSlider(
            options=factors, value=factors[-1], description="factor"
        ),
    )
