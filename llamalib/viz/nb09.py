r"""Pictures and widget of notebook 09."""

import html
import threading

import ipywidgets as ipw

from ..decoding import generate
from . import charts
from .base import COLOURS, array, canvas, plain
from .model_map import strip  # noqa: F401
from .nb07 import next_token_bars  # noqa: F401


def cost_by_position(
    positions, series, title="", unit="positions run\nthrough the model"
):
    r"""Draw the cost of each new token by its position.

    Args:
        positions: n ints.
        series: two names with n numbers each; the first line is grey.
        title: over the picture.
        unit: of the numbers.
    """
    fig, ax = canvas(3.2)
    mark = "o-" if len(positions) < 10 else "-"
    looks = [("other", mark), ("plain", mark)]
    charts.lines(ax, series, looks, positions)
    charts.finish(ax, title, "position of the new token", unit)
    ax.set_ylim(bottom=0)
    charts.add_legend(ax, fontsize=10)
    return fig


def bytes_by_length(lengths, weights, caches):
    r"""Draw the bytes that one decode step reads: weights and caches.

    Args:
        lengths: n ints, positions in the cache.
        weights: bytes.
        caches: number of texts decoded together to n numbers of bytes.
    """
    fig, ax = canvas(3.2)
    ax.axhline(weights / 1e6, color=COLOURS["plain"], lw=2)
    charts.note(ax, lengths[0], weights / 1e6, "weights")
    series = {
        f"cache, {texts} text{'s' if texts > 1 else ''}": array(sizes) / 1e6
        for texts, sizes in caches.items()
    }
    looks = [("key", style) for style in ("-", "--", ":")]
    charts.lines(ax, series, looks, lengths)
    charts.log_axis(ax, "x", lengths[::2], "{:,}".format, base=2)
    charts.log_axis(ax, "y")
    name = "The weights once, the cache for every text"
    x, y = "positions of each text", "read for one step, MB"
    charts.finish(ax, name, x, y, legend="best")
    return fig


def roofline(bandwidth, peak, products, steps=()):
    r"""Draw speed against operations per byte, under a machine's two limits.

    Args:
        bandwidth: bytes a second from memory.
        peak: most operations a second that were measured.
        products: (rows, operations per byte, operations a second) each.
        steps: (name, operations per byte, operations a second) of whole
            passes of a model.
    """
    fig, ax = canvas(4.2)
    _, xs, ys = zip(*products, *steps)
    lowest, highest = min(xs) / 4, max(xs) * 3
    _roof(ax, bandwidth, peak, lowest, highest)
    tone = COLOURS["feed-forward"]
    rows, xs_, ys_ = zip(*products)
    charts.lines(
        ax,
        {"one product, by rows": array(ys_) / 1e9},
        [("feed-forward", "o-", dict(lw=1))],
        xs_,
    )
    for n, x, y in products:
        text = f"{n} row" if n == rows[0] else f"{n}"
        charts.note(ax, x, y / 1e9, text, 4, -11, fontsize=8, color=tone)
    style = dict(color=COLOURS["probability"], mec=COLOURS["plain"], mew=0.6)
    for (name, x, y), mark in zip(steps, "*DsP^"):
        size = 11 if mark == "*" else 7
        ax.plot(x, y / 1e9, mark, ms=size, label=plain(name), **style)
    charts.log_axis(ax, "x")
    charts.log_axis(ax, "y", subs=(1, 2, 5))
    x, y = "operations for each byte moved", "billion operations\na second"
    bottom = min(*ys, lowest * bandwidth) / 2e9
    limits = bottom, 2 * peak / 1e9
    charts.finish(ax, x=x, y=y, ylim=limits, legend="above")
    return fig


def _roof(ax, bandwidth, peak, lowest, highest):
    """Draw the limits of memory and arithmetic between two x values."""
    ridge = min(max(peak / bandwidth, lowest), highest)
    xs = sorted({lowest, ridge, highest})
    ys = [min(x * bandwidth, peak) / 1e9 for x in xs]
    ax.plot(xs, ys, color=COLOURS["other"], lw=2)
    middle = (xs[0] * xs[1]) ** 0.5  # of the slope
    y = min(middle * bandwidth, peak) / 1e9
    style = dict(ha="right", color=COLOURS["plain"])
    text = f"memory: {bandwidth / 1e9:,.0f} GB/s"
    charts.note(ax, middle, y, text, -8, **style)
    text = f"arithmetic, the best measured: {peak / 1e9:,.0f} billion a second"
    charts.note(ax, highest, peak / 1e9, text, 0, 5, **style)


def speed_by_batch(sizes, together, one):
    r"""Draw tokens a second of texts that decode together.

    Args:
        sizes: n ints, texts in the batch.
        together: n numbers, tokens a second of all texts.
        one: tokens a second of one text.
    """
    fig, ax = canvas(3.0)
    free = [n * one for n in sizes]
    series = {"if every further text were free": free, "here": together}
    charts.lines(ax, series, [("other", "-"), ("plain", "o-")], sizes)
    charts.log_axis(ax, "x", sizes, base=2)
    charts.log_axis(ax, "y", text="{:,.0f}".format, base=2)
    y = "tokens a second,\nall texts"
    charts.finish(ax, "Speed of a batch", "texts decoded together", y)
    charts.add_legend(ax, fontsize=10)
    return fig


# -- the widget


class Stream(ipw.VBox):
    r"""A prompt, and its continuation as it grows; it can be stopped.

    Args:
        llama: with its tokenizer.
        prompt: continued at once.
        max_new_tokens: see `generate`.

    Attributes:
        prompt, temperature, go, stop: the controls.
        text: HTML of the prompt and its continuation.
        thread: generates; join it to wait for the end.
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
        """Start to continue the prompt."""
        self._stopped.clear()
        self.go.disabled, self.stop.disabled = True, False
        # a thread, so that the kernel can react to the stop button
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        prompt, text = self.prompt.value, ""
        tokenizer = self.llama.tokenizer
        try:
            new = generate(
                self.llama,
                tokenizer.encode(prompt, bos=True, eos=False),
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature.value,
            )
            self._show(prompt, text)
            for piece in tokenizer.decode_stream(new):
                if self._stopped.is_set():
                    break
                text += piece
                self._show(prompt, text)
        except ValueError as error:
            self._show(prompt, f" [{error}]")
        finally:
            self.go.disabled, self.stop.disabled = False, True

    def _show(self, prompt, text):
        """Show the prompt in grey and its continuation in black."""
        self.text.value = (
            '<div style="white-space: pre-wrap; max-width: 620px">'
            f'<span style="color: #777777">{html.escape(prompt)}</span>'
            f"{html.escape(text)}</div>"
        )

    def __repr__(self) -> str:
        return f"Stream(prompt={self.prompt.value!r})"

    def _repr_mimebundle_(self, **kwargs):
        """Return the live widget, and its first text for a saved notebook."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        return bundle | {"text/html": self.still, "text/plain": repr(self)}


def stream(
    llama,
    prompt: str = "The capital of France is",
    max_new_tokens: int = 120,
) -> Stream:
    """Return a prompt box; see `Stream`."""
    return Stream(llama, prompt, max_new_tokens)
