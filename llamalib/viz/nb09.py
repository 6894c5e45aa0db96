r"""Pictures and widget of notebook 09."""

import html
import threading

import ipywidgets as ipw

from ..decoding import generate
from . import charts
from .base import COLOURS, array, canvas, plain
from .model_map import strip  # noqa: F401
from .play import fit

NOTE = "<p><em>A saved text. Run this cell to type a prompt.</em></p>"


def cost_by_position(positions, series, title, unit):
    """Draw the cost of each new token; two names, the first is grey."""
    fig, ax = canvas(3.2)
    mark = "o-" if len(positions) < 10 else "-"
    charts.lines(ax, series, [("other", mark), ("plain", mark)], positions)
    ax.set_ylim(bottom=0)
    x = "position of the new token"
    return charts.finish(ax, title, x, unit, legend="best")


def bytes_by_length(lengths, weights, caches):
    """Draw the bytes read by a step; caches: number of texts to bytes."""
    fig, ax = canvas(3.2)
    ax.axhline(weights / 1e6, color=COLOURS["plain"], lw=2)
    charts.note(ax, lengths[0], weights / 1e6, "weights")
    series = {}
    for n, sizes in caches.items():
        series[f"cache, {n} text{'s' if n > 1 else ''}"] = array(sizes) / 1e6
    looks = [("key", style) for style in ("-", "--", ":")]
    charts.lines(ax, series, looks, lengths)
    charts.log_axis(ax, "x", lengths[::2], "{:,}".format, base=2)
    charts.log_axis(ax, "y")
    name = "The weights once, the cache for every text"
    x, y = "positions of each text", "read for one step, MB"
    return charts.finish(ax, name, x, y, legend="best")


def roofline(bandwidth, peak, products, steps=()):
    r"""Draw speed by operations per byte, under a machine's two limits.

    Args:
        bandwidth: bytes a second from memory.
        peak: most operations a second that were measured.
        products: (rows, operations per byte, operations a second) each.
        steps: (name of a pass, operations per byte, operations a second).
    """
    fig, ax = canvas(4.2)
    _, xs, ys = zip(*products, *steps)
    lowest, highest = min(xs) / 4, max(xs) * 3
    _roof(ax, bandwidth, peak, lowest, highest)
    n, style = len(products), dict(fontsize=8, color=COLOURS["feed-forward"])
    line = {"one product, by rows": (xs[:n], array(ys[:n]) / 1e9)}
    charts.lines(ax, line, [("feed-forward", "o-", dict(lw=1))])
    for i, (rows, x, y) in enumerate(products):
        text = f"{rows}" if i else f"{rows} row"
        charts.note(ax, x, y / 1e9, text, 4, -11, **style)
    style = dict(color=COLOURS["probability"], mec=COLOURS["plain"], mew=0.6)
    for (name, x, y), mark in zip(steps, "*DsP^"):
        style |= dict(ms=11 if mark == "*" else 7, label=plain(name))
        ax.plot(x, y / 1e9, mark, **style)
    charts.log_axis(ax, "x")
    charts.log_axis(ax, "y", subs=(1, 2, 5))
    ax.set_ylim(min(*ys, lowest * bandwidth) / 2e9, 2 * peak / 1e9)
    x, y = "operations for each byte moved", "billion operations\na second"
    return charts.finish(ax, "", x, y, legend="above")


def _roof(ax, bandwidth, peak, lowest, highest):
    """Draw the two limits between two numbers of operations per byte."""
    ridge = min(max(peak / bandwidth, lowest), highest)
    xs = [lowest, (lowest * ridge) ** 0.5, ridge, highest]
    ys = [min(x * bandwidth, peak) / 1e9 for x in xs]
    ax.plot(xs, ys, color=COLOURS["other"], lw=2)
    style = dict(ha="right", color=COLOURS["plain"])
    text = f"memory-bound: {bandwidth / 1e9:,.0f} GB/s"
    if ridge > lowest:
        charts.note(ax, xs[1], ys[1], text, -8, **style)
    text = f"compute-bound, at most {peak / 1e9:,.0f} billion a second here"
    charts.note(ax, highest, peak / 1e9, text, 0, 5, **style)


def speed_by_batch(sizes, together, one):
    """Draw tokens a second of n texts decoded together, and of n free ones."""
    fig, ax = canvas(3.0)
    free = [n * one for n in sizes]
    series = {"if every further text were free": free, "here": together}
    charts.lines(ax, series, [("other", "-"), ("plain", "o-")], sizes)
    charts.log_axis(ax, "x", sizes, base=2)
    charts.log_axis(ax, "y", text="{:,.0f}".format, base=2)
    x, y = "texts decoded together", "tokens a second,\nall texts"
    return charts.finish(ax, "Speed of a batch", x, y, legend="best")


class Stream(ipw.VBox):
    """A prompt, and its continuation as it grows; it can be stopped."""

    def __init__(
        self, llama, prompt="The capital of France is", max_new_tokens=120
    ):
        self.llama, self.max_new_tokens = llama, max_new_tokens
        self.prompt = ipw.Text(prompt, description="prompt")
        style = dict(step=0.1, description="temperature")
        self.temperature = ipw.FloatSlider(0.0, min=0.0, max=2.0, **style)
        fit(self.prompt)
        fit(self.temperature)
        self.go = ipw.Button(description="continue", icon="play")
        self.stop = ipw.Button(description="stop", icon="stop")
        self.go.on_click(lambda button: self.start())
        self.stop.on_click(lambda button: self._stopped.set())
        self.text, self._stopped = ipw.HTML(), threading.Event()
        buttons = ipw.HBox([self.go, self.stop])
        super().__init__([self.prompt, self.temperature, buttons, self.text])
        self.start()
        self.thread.join()
        self.still = self.text.value

    def start(self) -> None:
        """Continue the prompt in a thread, so that the stop button works."""
        self._stopped.clear()
        self.go.disabled, self.stop.disabled = True, False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        prompt, tokenizer = self.prompt.value, self.llama.tokenizer
        n, temperature, text = self.max_new_tokens, self.temperature.value, ""
        try:
            ids = tokenizer.encode(prompt, bos=True, eos=False)
            options = dict(max_new_tokens=n, temperature=temperature)
            new = generate(self.llama, ids, **options)
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
        """Show the prompt, paler, and its continuation."""
        self.text.value = (
            '<div style="white-space: pre-wrap; max-width: 620px">'
            f'<span style="opacity: 0.6">{html.escape(prompt)}</span>'
            f"{html.escape(text)}</div>"
        )

    def __repr__(self) -> str:
        return f"Stream(prompt={self.prompt.value!r})"

    def _repr_mimebundle_(self, **kwargs):
        """Return the live widget, and its first text for a saved notebook."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        page = self.still + NOTE
        return bundle | {"text/html": page, "text/plain": repr(self)}


stream = Stream  # in a notebook a widget is called like a picture
