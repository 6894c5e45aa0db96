"""Pictures, widgets and checks of notebook 09."""

import html
import re
import threading
import timeit
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from itertools import islice
from numbers import Integral

import ipywidgets as ipw
import torch
import torch.nn.functional as F

from llamalib.generate import generate
from llamalib.model import LLAMA_1B
from llamalib.threads import choose_threads

from . import charts
from .judge import Wrong, agree, exercise, vary
from .play import Lesson, fit
from .pocket import strip  # noqa: F401
from .texts import held_out_texts
from .theme import canvas, size_text

NOTE = "A saved text. Run the notebook to type a prompt."


def time_by_position(positions, steps):
    """Measure and draw the time of a new token; two steps, the first grey.

    steps: by name, a function that runs one step at a position. A point is
    the shortest of ten times: other programs disturbed it least.
    """
    series = {
        name: [shortest_ms(partial(step, n)) for n in positions]
        for name, step in steps.items()
    }
    fig, ax = canvas(3.2)
    charts.lines(ax, series, [("other", "o-"), ("plain", "o-")], positions)
    ax.set_ylim(bottom=0)
    words = "Time for one token", "position of the new token", "milliseconds"
    return charts.finish(ax, *words, legend="best")


def shortest_ms(run, times=10) -> float:
    """Return the milliseconds of the shortest of several runs."""
    seconds = timeit.repeat(lambda: run().sum().item(), number=1, repeat=times)
    return 1000 * min(seconds)  # .item() has waited for a GPU


def cache_bytes(positions, series, weights, name=""):
    """Draw a KV cache's bytes by length, for each kind, and the weights'."""
    fig, ax = canvas(3.4)
    looks = [("value", style) for style in ("--", "-", ":")]
    charts.lines(ax, series, looks, positions)
    for n in (values[-1] for values in series.values()):
        charts.write(ax, positions[-1] * 1.1, n, size_text(n), ha="left")
    charts.mark_y(ax, weights, f"the weights: {size_text(weights)}")
    charts.log_axis(ax, "x", positions[::3], "{:,}".format, base=2)
    charts.log_axis(ax, "y", text=size_text)
    style = dict(legend="lower right", xlim=(positions[0], positions[-1] * 2))
    x, y = "tokens in the text", "keys and values of one text"
    return charts.finish(ax, name, x, y, **style)


@torch.inference_mode()
def two_pass_losses(llama, Cache) -> list[float]:
    """Return each held-out text's mean loss; a cache joins its two halves."""
    like, losses = dict(device=llama.device, dtype=llama.dtype), []
    for text in held_out_texts(llama):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        row = torch.tensor(ids, device=llama.device)  # (T,)
        cache = Cache(llama.config, len(row), **like)
        logits = [llama(half, cache) for half in row.tensor_split(2)]
        loss = F.cross_entropy(torch.cat(logits)[:-1], row[1:])
        losses.append(loss.item())
    return losses


class Stream(Lesson):
    """A prompt, and its continuation as it grows; it can be stopped.

    max_new_tokens: the sentence of this token is the last one; after twice
    as many the text ends anywhere.
    """

    def __init__(
        self, llama, prompt="The capital of France is", max_new_tokens=120
    ):
        choose_threads(llama)  # the index begins with this widget
        self.llama, self.max_new_tokens = llama, max_new_tokens
        style = dict(description="prompt", continuous_update=False)
        self.prompt = ipw.Text(prompt, **style)
        same = "temperature (0: always the same text)"
        style = dict(step=0.1, description=same)
        self.temperature = ipw.FloatSlider(0.0, min=0.0, max=2.0, **style)
        fit(self.prompt, self.temperature)
        self.go = ipw.Button(description="write", icon="play")
        self.stop = ipw.Button(description="stop", icon="stop")
        self.prompt.on_msg(self._key)
        self.go.on_click(lambda button: self.start())
        self.stop.on_click(lambda button: self._stopped.set())
        self.text, self._stopped = ipw.HTML(), threading.Event()
        buttons = ipw.HBox([self.go, self.stop])
        children = self.prompt, self.temperature, buttons, self.text
        super().__init__(children, NOTE)
        self.thread = None
        self.start()
        self.thread.join()
        self.still = self.text.value

    def _key(self, prompt, message, buffers):
        """Start at Enter, when the new prompt is here, too.

        The browser sends the key first. It sends a new prompt also when the
        reader leaves the field, which starts nothing.
        """
        if message.get("event") == "submit":
            self.start(wait=0.2)

    def start(self, wait=0.0) -> None:
        """Continue the prompt in a thread, so that the stop button works."""
        if self.thread:  # never two at once
            self._stopped.set()
            self.thread.join()
        self._stopped.clear()
        self.go.disabled, self.stop.disabled = True, False
        self.thread = threading.Timer(wait, self._run)
        self.thread.start()

    def _run(self):
        prompt, tokenizer = self.prompt.value, self.llama.tokenizer
        n, temperature, text = self.max_new_tokens, self.temperature.value, ""
        try:
            ids = tokenizer.encode(prompt, bos=True, eos=False)
            options = dict(max_new_tokens=2 * n, temperature=temperature)
            new = generate(self.llama, ids, **options)
            self._show(prompt, text)
            for piece in whole_sentences(tokenizer.decode_stream(new), n):
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
        page = f"{self.still}<p><em>{NOTE}</em></p>"
        return bundle | {"text/html": page, "text/plain": repr(self)}


stream = Stream  # the widget, named as a picture is


def whole_sentences(pieces, n):
    """Yield n pieces of a text, and more up to the end of a sentence."""
    text = ""
    for i, piece in enumerate(pieces):
        # the next piece shows that the sentence, or a quotation, has ended
        if i >= n and re.search(r"[.!?]\W?\s+\S?$", text + piece[:1]):
            return
        yield piece
        text += piece


# -- the checks of the exercises --


def collect(function) -> Callable:
    """Return a function that gives a list for each generator."""

    @wraps(function)
    def run(*args):
        result = function(*args)
        is_iterator = isinstance(result, Iterator)
        return list(islice(result, 100)) if is_iterator else result

    return run if callable(function) else function


@exercise(1, "two whole numbers")
def check_1(answer):
    """Judge my_positions(t, n): positions without a cache, and with one."""
    for t, n in vary(((5, 4), (1, 1), (100, 7)), ((6, 3), (80, 9)), ((8, 5),)):
        grows = "without a cache: the text grows with every new token"
        right, kept = sum(range(t, t + n)), t + n - 1
        more = right + t + n
        mistakes = {
            "without a cache: one pass too many": (more, kept),
            "without a cache, one pass too many; with one, too": (more, t + n),
            grows: (n * t, kept),
            "with a cache: the last new token never goes in": (right, t + n),
            "with a cache: the prompt runs too, once": (right, n),
            "expected the other order": (kept, right),
        }
        what = f"t = {t}, n = {n}: the result"
        agree(answer(t, n), (right, kept), mistakes.items(), what=what)
    return "and it counts what a cache saves"


@exercise(2, "ids, one at a time")
def check_2(answer, llama):
    """Judge my_generate(llama, ids, n, stop)."""
    written, answer.function = answer.function, collect(answer.function)
    # after each the pocket Llama soon ends the text: no id of `stop`
    n, land = vary((6, "Japan"), (5, "Egypt"), (8, "Norway"), (7, "China"))
    for text in (f"The capital of {land} is", "Once upon a time there was a"):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        whole = list(generate(llama, ids, max_new_tokens=n, stop=()))
        found, ran = count_positions(llama, answer, ids, n, set())
        mistakes = [("the prompt's ids are given out too", ids + whole)]
        if isinstance(found, list) and found[:n] == whole:
            mistakes += [(f"{len(found)} ids; expected {n} at most", found)]
        mistakes += [
            ("it stops at an id that is not in stop", whole[:end])
            for end in range(1, n)
        ]
        agree(found, whole, mistakes, 1e-9, "the list of ids")
        if not all(isinstance(i, Integral) for i in found):
            name = type(found[0]).__name__
            raise Wrong(f"expected ints, found a {name}: use .item()")
        extra = ran - (len(ids) + n - 1)
        if extra < 0:
            raise Wrong("new positions did not run: call llama(…) for each")
        if extra > 1:
            raise Wrong("old positions run again: run the new id alone")
        if extra == 1:
            raise Wrong("a position too many: the last new id never goes in")
        for last in (whole[3], whole[0]):
            end = whole.index(last)
            mistakes = {
                "it does not stop at an id of stop": whole,
                "the id that ends the text is given out too": whole[: end + 1],
            }.items()
            found, ran = count_positions(llama, answer, ids, n, {last})
            agree(found, whole[:end], mistakes, 1e-9, "with a stop: the list")
            if ran > len(ids) + end:
                raise Wrong("positions run after the end: first test the id")
        given, ran = count_positions(llama, written, ids, n, set(), take=first)
        if given is None:
            raise Wrong("it returns all ids at once: yield each one")
        if ran > len(ids):
            raise Wrong("the first id is known after the prompt: yield it")
    return "the ids of llamalib.generate, each position run once"


def first(result):
    """Return the first id that an iterator gives, or None for a list."""
    return next(result) if isinstance(result, Iterator) else None


def count_positions(llama, answer, *given, take=lambda ids: ids) -> tuple:
    """Return what is taken of the answer's ids, and how many positions ran."""
    ran = []

    def note(module, args, options):
        ran.append((args[0] if args else options["tokens"]).numel())

    handle = llama.register_forward_pre_hook(note, with_kwargs=True)
    try:
        return take(answer(llama, *given)), sum(ran)
    finally:
        handle.remove()


@exercise(3, "a number")
def check_3(answer, llama):
    """Judge my_limit(bandwidth, P, config, n, size)."""
    wide = replace(LLAMA_1B, head_width=3 * LLAMA_1B.head_dim)
    P, speed, m = vary(
        (10**6, 10**9, 1000), (98765, 10**8, 90), (777, 10**9, 60)
    )
    # with 2 or 4 bytes, other mistakes would give the same numbers
    cases = (LLAMA_1B, m, 3), (wide, m, 8), (llama.config, m // 20, 2)
    of_cache = "a number in the cache has `size` bytes, too"
    for c, n, size in (*cases, (LLAMA_1B, 0, 1)):
        cache = 2 * c.n_layers * c.n_kv_heads * c.head_dim * n
        right = speed / size / (P + cache)
        factors = {
            "the cache is read too": 0,
            "keys and values: twice as many": 1 / 2,
            "the cache has KV heads, not H": c.n_heads // c.n_kv_heads,
            "every layer has its own cache": 1 / c.n_layers,
            "use head_dim, not dim // n_heads": c.dim / c.n_heads / c.head_dim,
        }
        mistakes = [
            (words, speed / size / (P + factor * cache))
            for words, factor in factors.items()
        ]
        mistakes += [
            *((of_cache, speed / (size * P + b * cache)) for b in (1, 2)),
            ("a number takes more than one byte: see size", right * size),
            ("this is the time of a step; expected steps a second", 1 / right),
        ]
        agree(answer(speed, P, c, n, size), right, mistakes)
    return "fewer bytes, more tokens"
