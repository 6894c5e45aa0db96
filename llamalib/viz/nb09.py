r"""The pictures of notebook 09."""

import html
import threading
import ipywidgets as ipw

from matplotlib.ticker import LogLocator

from .base import COLOURS, canvas, legend_above, plain
from .base import title as put_title
from ..decoding import generate
from .model_map import strip  # noqa: F401
from .nb07 import next_token_bars  # noqa: F401


def cost_by_position(
    positions, series, title="", unit="positions run\nthrough the model"
):
    r"""Lines that grow, or do not, with the position in the text.

    Args:
        positions: n ints, the x axis.
        series: two names with n numbers each; the first is drawn in
            grey, the second dark.
        title: over the picture.
        unit: of the numbers.
    """
    fig, ax = canvas(3.2)
    for (name, values), role in zip(
        series.items(), ("other", "plain"), strict=True
    ):
        mark = "o-" if len(positions) < 10 else "-"
        ax.plot(positions, values, mark, label=name, color=COLOURS[role], lw=2)
    ax.set_xlabel("position of the new token")
    ax.set_ylabel(unit)
    ax.set_ylim(bottom=0)
    put_title(ax, title)
    ax.legend(frameon=False)
    return fig


def bytes_by_length(lengths, weights, caches):
    r"""What one decode step reads: the weights, and a cache that grows.

    Args:
        lengths: n ints, positions in the cache.
        weights: bytes.
        caches: texts decoded together, and the bytes of their caches at
            each length: {texts: n numbers}.
    """
    fig, ax = canvas(3.2)
    ax.axhline(weights / 1e6, color=COLOURS["plain"], lw=2)
    ax.annotate(
        "weights",
        (lengths[0], weights / 1e6),
        xytext=(0, 4),
        textcoords="offset points",
    )
    for (texts, sizes), style in zip(caches.items(), ("-", "--", ":")):
        ax.plot(
            lengths,
            [size / 1e6 for size in sizes],
            color=COLOURS["key"],
            ls=style,
            lw=2,
            label=f"cache, {texts} text{'s' if texts > 1 else ''}",
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths[::2], [f"{n:,}" for n in lengths[::2]])
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
    ax.minorticks_off()
    ax.set_xlabel("positions of each text")
    ax.set_ylabel("read for one step, MB")
    put_title(ax, "The weights once, the cache for every text")
    ax.legend(frameon=False, fontsize=9)
    return fig


def roofline(bandwidth, peak, products, steps=()):
    r"""Speed against operations per byte, under the two roofs of a machine.

    Args:
        bandwidth: bytes a second that the memory gives.
        peak: operations a second, the most that was seen.
        products: (rows, operations per byte, operations per second) of a
            product with so many rows.
        steps: (name, operations per byte, operations per second) of whole
            passes of a model.
    """
    fig, ax = canvas(4.2)
    lowest = min(x for _, x, _ in (*products, *steps)) / 4
    highest = max(x for _, x, _ in (*products, *steps)) * 3
    ridge = peak / bandwidth
    roof = sorted({lowest, min(max(ridge, lowest), highest), highest})
    ax.plot(
        roof,
        [min(x * bandwidth, peak) / 1e9 for x in roof],
        color=COLOURS["other"],
        lw=2,
    )
    middle = (roof[0] * roof[1]) ** 0.5  # of the slope
    ax.annotate(
        f"memory: {bandwidth / 1e9:,.0f} GB/s",
        (middle, min(middle * bandwidth, peak) / 1e9),
        xytext=(-8, 4),
        textcoords="offset points",
        ha="right",
        color=COLOURS["plain"],
    )
    ax.annotate(
        f"arithmetic, the best measured: {peak / 1e9:,.0f} billion a second",
        (highest, peak / 1e9),
        xytext=(0, 5),
        textcoords="offset points",
        ha="right",
        color=COLOURS["plain"],
    )
    _, xs, ys = zip(*products)
    ax.plot(
        xs,
        [y / 1e9 for y in ys],
        "o-",
        color=COLOURS["feed-forward"],
        lw=1,
        label="one product, by rows",
    )
    for i, (rows, x, y) in enumerate(products):
        ax.annotate(
            f"{rows}" if i else f"{rows} row",
            (x, y / 1e9),
            xytext=(4, -11),
            textcoords="offset points",
            fontsize=8,
            color=COLOURS["feed-forward"],
        )
    for (name, x, y), mark in zip(steps, "*DsP^"):
        ax.plot(
            x,
            y / 1e9,
            mark,
            ms=11 if mark == "*" else 7,
            color=COLOURS["probability"],
            mec=COLOURS["plain"],
            mew=0.6,
            label=plain(name),
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    slowest = min(y for _, _, y in (*products, *steps)) / 1e9
    ax.set_ylim(min(slowest, lowest * bandwidth / 1e9) / 2, 2 * peak / 1e9)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda x, _: f"{x:,g}")
    ax.minorticks_off()
    ax.set_xlabel("operations for each byte moved")
    ax.set_ylabel("billion operations\na second")
    legend_above(ax, 1 + len(steps))
    return fig


def speed_by_batch(sizes, together, one):
    r"""Tokens a second of texts that decode together.

    Args:
        sizes: n ints, texts in the batch.
        together: n numbers, tokens a second of all texts.
        one: tokens a second of one text alone, drawn as if each further
            text came for nothing.
    """
    fig, ax = canvas(3.0)
    ax.plot(
        sizes,
        [n * one for n in sizes],
        color=COLOURS["other"],
        lw=2,
        label="if every further text were free",
    )
    ax.plot(sizes, together, "o-", color=COLOURS["plain"], lw=2, label="here")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    ax.set_xlabel("texts decoded together")
    ax.set_ylabel("tokens a second,\nall texts")
    put_title(ax, "Speed of a batch")
    ax.legend(frameon=False)
    return fig


# -- the widget

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
