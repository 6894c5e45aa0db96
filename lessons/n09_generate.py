"""Pictures, widgets and checks of notebook 09."""

import html
import threading
import timeit
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from itertools import islice
from numbers import Integral

import ipywidgets as ipw
import torch

from llamalib.cache import KVCache
from llamalib.chat import check_trained
from llamalib.generate import decode_one, generate, prefill
from llamalib.model import LLAMA_1B
from llamalib.threads import choose_threads

from . import charts, judge
from .judge import Wrong, agree, exercise, vary
from .map import strip  # noqa: F401
from .play import Lesson, fit
from .theme import COLOURS, canvas

SAVED = "A saved conversation. Run the notebook to type a message."
WIDE = "white-space: pre-wrap; max-width: 620px"


def positions_run(T, n):
    """Draw the naive loop: a row for each pass, a place for each position.

    T: tokens of the prompt.  n: new tokens, so n passes.
    """
    fig, ax = canvas(3.4)
    rows = range(1, n + 1)
    again = [0, *range(T, T + n - 1)]  # positions of the pass before
    new = [T, *[1] * (n - 1)]
    style = dict(height=0.8, color=COLOURS["other"], alpha=0.5)
    ax.barh(rows, again, label=f"run again: {sum(again)}", **style)
    style = dict(height=0.8, color=COLOURS["token"])
    ax.barh(rows, new, left=again, label=f"new: {sum(new)}", **style)
    ax.set_ylim(n + 0.6, 0.4)
    words = "What each pass of the naive loop runs", "position", "pass"
    return charts.finish(ax, *words, legend="upper right")


def step_times(llama, ids, positions):
    """Draw the time of a new token at positions of a text: two loops.

    The naive one runs the whole text; the other one the token alone, with a
    cache that holds what is before it.
    """
    tokens = torch.tensor([ids[: max(positions)]], device=llama.device)
    like = dict(device=llama.device, dtype=llama.dtype)
    cache = KVCache(llama.config, tokens.shape[1], **like)
    prefill(llama, tokens[:, :-1], cache)

    def naive(n):
        return llama(tokens[:, :n], last_only=True)

    def cached(n):
        cache.advance(n - 1 - cache.length)  # what is before it
        return decode_one(llama, tokens[:, n - 1], cache)

    steps = {"naive": naive, "with the cache": cached}
    return time_by_position(positions, steps)


def time_by_position(positions, steps):
    """Measure and draw the time of a new token; two steps, the first grey.

    steps: by name, a function that runs one step at a position. A point is
    the shortest of three times: other programs disturbed it least.
    """
    series = {
        name: [shortest_ms(partial(step, n)) for n in positions]
        for name, step in steps.items()
    }
    fig, ax = canvas(2.8)
    charts.lines(ax, series, [("other", "o-"), ("plain", "o-")], positions)
    ax.set_ylim(bottom=0)
    words = "Time for one token", "position of the new token", "milliseconds"
    return charts.finish(ax, *words, legend="best")


def shortest_ms(run, times=3) -> float:
    """Return the milliseconds of the shortest of several runs."""
    seconds = timeit.repeat(lambda: run().sum().item(), number=1, repeat=times)
    return 1000 * min(seconds)  # .item() has waited for a GPU


def can_chat(llama) -> bool:
    """Return whether a model was trained for dialogues; if not, say so."""
    try:
        check_trained(llama)
    except ValueError:
        print(f"{llama.name} was not trained for dialogues, so it does not")
        print("chat. Below it continues your text instead.")
        return False
    return True


def answers(llama, max_new_tokens=200) -> Callable:
    """Return a function that answers messages, with `llamalib.generate`."""
    choose_threads(llama)  # the index begins with it
    chats, tokenizer = can_chat(llama), llama.tokenizer

    def answer(messages):
        if chats:
            ids = tokenizer.encode_chat(messages)
        else:  # continue the last message
            last = messages[-1]["content"]
            ids = tokenizer.encode(last, bos=True, eos=False)
        new = generate(llama, ids, max_new_tokens=max_new_tokens)
        return tokenizer.decode_stream(new)

    return answer


class Chat(Lesson):
    """A conversation with a function that answers; it can be stopped.

    answer: takes messages, as `Tokenizer.encode_chat` does; returns pieces
    of text, an iterator.
    messages: the conversation so far; it is also the saved one.
    """

    note = SAVED

    def __init__(self, answer: Callable, messages=()):
        self.answer, self.messages = answer, list(messages)
        style = dict(description="message", continuous_update=False)
        self.message = ipw.Text("", placeholder="Type, then Enter", **style)
        self.message.on_msg(self._key)
        self.go = ipw.Button(description="send", icon="play")
        self.go.on_click(lambda button: self.start())
        self.stop = ipw.Button(description="stop", icon="stop", disabled=True)
        self.stop.on_click(lambda button: self._stopped.set())
        self.new = ipw.Button(description="new conversation", icon="trash")
        self.new.layout.width = "auto"  # as wide as its words
        self.new.on_click(lambda button: self.clear())
        self.text, self._stopped = ipw.HTML(), threading.Event()
        self.thread = None
        fit(self.message)
        buttons = ipw.HBox([self.go, self.stop, self.new])
        super().__init__([self.message, buttons, self.text], SAVED)
        self._show(self.messages)
        self.still = self.text.value

    def _key(self, field, message, buffers):
        """Start at Enter, when the new text is here, too.

        The browser sends the key first. It sends a new text also when the
        reader leaves the field, which starts nothing.
        """
        if message.get("event") == "submit":
            self.start(wait=0.2)

    def start(self, wait=0.0) -> None:
        """Answer in a thread, so that the stop button works."""
        self.end()  # never two at once
        self._stopped.clear()
        self.go.disabled, self.stop.disabled = True, False
        self.thread = threading.Timer(wait, self._run)
        self.thread.start()

    def end(self) -> None:
        """Stop the thread, if there is one, and wait for its end."""
        if self.thread:
            self._stopped.set()
            self.thread.join()

    def clear(self) -> None:
        """Stop, and forget the conversation."""
        self.end()
        self.messages = []
        self._show([])

    def _run(self):
        try:
            self._write()
        finally:
            self.go.disabled, self.stop.disabled = False, True

    def _write(self):
        question = self.message.value.strip()
        if not question:
            return  # the conversation stays as it is
        self.message.value = ""
        asked = [*self.messages, {"role": "user", "content": question}]
        said, text = {"role": "assistant", "content": ""}, ""
        try:
            self._show([*asked, said])
            for piece in self.answer(asked):
                if self._stopped.is_set():
                    break
                text += piece
                said = {"role": "assistant", "content": text}
                self._show([*asked, said])
        except ValueError as error:
            text, said["content"] = "", f"[{error}]"
        if text:  # a stopped answer is kept as far as it came
            self.messages = [*asked, said]
        elif not said["content"]:
            said["content"] = "[no answer]"
        self._show([*asked, said])

    def _show(self, messages):
        """Show a conversation, the newest message and its answer first.

        So they are next to the field. The reader's messages are paler.
        """
        pairs = [messages[i : i + 2] for i in range(0, len(messages), 2)]
        lines = []
        for message in (each for pair in reversed(pairs) for each in pair):
            text = html.escape(message["content"])
            if message["role"] == "user":
                text = f'<span style="opacity: 0.6">you: {text}</span>'
            lines.append(text)
        text = "\n\n".join(lines)
        self.text.value = f'<div style="{WIDE}">{text}</div>'

    def _repr_mimebundle_(self, **kwargs):
        """Return the live widget, and its first text for a saved notebook."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        page = f"{self.still}<p><em>{self.note}</em></p>"
        return bundle | {"text/html": page, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Chat(messages={len(self.messages)})"


chat = Chat


# -- the checks of the exercises --


@exercise(1, "two whole numbers")
def check_1(answer):
    """Judge my_positions(t, n): positions without a cache, and with one."""
    cases = vary(((5, 4), (1, 1), (100, 7)), ((6, 3), (80, 9)), ((8, 5),))
    named = {f"t = {t}, n = {n}: the result": (t, n) for t, n in cases}
    judge.alike(answer, "09_generate", 1, named)
    return "and it counts what a cache saves"


def collect(function) -> Callable:
    """Return a function that gives a list for each generator."""

    @wraps(function)
    def run(*args):
        result = function(*args)
        is_iterator = isinstance(result, Iterator)
        return list(islice(result, 100)) if is_iterator else result

    return run if callable(function) else function


@exercise(2, "ids, one at a time")
def check_2(answer, llama):
    """Judge my_reply(llama, cache, held, ids, n, stop)."""
    written, answer.function = answer.function, collect(answer.function)
    # after each the pocket Llama soon ends the text: no id of `stop`
    n, land = vary((6, "Japan"), (5, "Egypt"), (8, "Norway"), (7, "China"))
    asked = f"The capital of {land} is"
    pairs = ("The capital of", asked), ("The capital of France is", asked)
    pairs += ("", asked), (asked, asked), (f"{asked} in", asked)
    for before, text in pairs:
        given = Held(llama, before, text, n)
        whole = given.whole
        found, ran = given.run(answer, set())
        judge_ids(found, whole, given.ids)
        extra = ran - (given.rest + n - 1)
        if extra < 0:
            raise Wrong("a position that differs from `held` did not run")
        if extra > 1:
            raise Wrong("old positions run again: the cache holds them")
        length = len(given.ids) + n - 1  # of the text, when all have run
        if extra == 1 and given.length == length:
            raise Wrong("one old position runs again: the cache holds it")
        if extra == 1:
            raise Wrong("a position too many: the last new id never goes in")
        if given.length != length:
            words = f"the cache ends with {given.length} positions; expected"
            raise Wrong(f"{words} {length}: go back to what is the same")
        agree(found, whole, (), 1e-9, "the list of ids")
        for last in (whole[3], whole[0]):
            end = whole.index(last)
            mistakes = {
                "it does not stop at an id of stop": whole,
                "the id that ends the text is given out too": whole[: end + 1],
            }.items()
            found, ran = given.run(answer, {last})
            agree(found, whole[:end], mistakes, 1e-9, "with a stop: the list")
            if ran > given.rest + end:
                raise Wrong("positions run after the end: first test the id")
        given_out, ran = given.run(written, set(), take=first)
        if given_out is None:
            raise Wrong("it returns all ids at once: yield each one")
        if ran > given.rest + 1:  # the next step may come before `yield`
            raise Wrong("the first id is known after the first pass: yield it")
    return "the ids of llamalib.generate, each position run once"


def judge_ids(found, whole, ids):
    """Raise Wrong for ids of another kind or number than expected."""
    if not isinstance(found, (list, tuple)) or not found:
        agree(found, whole, (), 1e-9, "the list of ids")
    for each in found:
        if not isinstance(each, Integral):
            name = type(each).__name__
            raise Wrong(f"expected ints, found a {name}: use .item()")
    found, n = list(found), len(whole)
    if found[: len(ids)] == ids:
        raise Wrong("the prompt's ids are given out too")
    if len(found) > n:
        raise Wrong(f"{len(found)} ids; expected {n} at most")
    if found == whole[: n - 1]:
        raise Wrong(f"{n - 1} ids; expected {n}")
    if found in [whole[:end] for end in range(1, n)]:
        raise Wrong("it stops at an id that is not in stop")


def first(result):
    """Return the first id that an iterator gives, or None for a list."""
    return next(result) if isinstance(result, Iterator) else None


class Held:
    """A text, and the ids of another one that a cache holds before it.

    Attributes:
        ids, whole: of the text, and the n that continue it.
        held: of the text before.
        rest: how many of `ids` must run.
        length: of the cache, after a run.
    """

    def __init__(self, llama, before: str, text: str, n: int):
        encode = partial(llama.tokenizer.encode, eos=False)
        self.llama, self.n = llama, n
        self.held = encode(before, bos=True) if before else []
        self.ids = encode(text, bos=True)
        new = generate(llama, self.ids, max_new_tokens=n, stop=())
        self.whole, same = list(new), 0
        for one, other in zip(self.held, self.ids[:-1], strict=False):
            if one != other:
                break
            same += 1
        self.rest = len(self.ids) - same

    def run(self, answer, stop, take=lambda ids: ids) -> tuple:
        """Return what is taken of an answer's ids, and how many ran."""
        room = len(self.held) + len(self.ids) + self.n
        like = dict(device=self.llama.device, dtype=self.llama.dtype)
        cache, ran = KVCache(self.llama.config, room, **like), []
        if self.held:
            tokens = torch.tensor([self.held], device=self.llama.device)
            prefill(self.llama, tokens, cache)

        def note(module, args, options):
            tokens = args[0] if args else options["tokens"]
            ran.append(tokens.numel())

        given = self.llama, cache, self.held, self.ids, self.n, stop
        handle = self.llama.register_forward_pre_hook(note, with_kwargs=True)
        try:
            return take(answer(*given)), sum(ran)
        finally:
            handle.remove()
            self.length = cache.length


@exercise(3, "a number")
def check_3(answer, llama):
    """Judge my_limit(bandwidth, P, config, n, size)."""
    wide = replace(LLAMA_1B, head_width=3 * LLAMA_1B.head_dim)
    P, speed, m = vary(
        (10**6, 10**9, 1000), (98765, 10**8, 90), (777, 10**9, 60)
    )
    # with 2 or 4 bytes, other mistakes would give the same numbers
    cases = (LLAMA_1B, m, 3), (wide, m, 8), (llama.config, m // 20, 2)
    given = [(speed, P, *case) for case in (*cases, (LLAMA_1B, 0, 1))]
    judge.alike(answer, "09_generate", 3, given)
    return "fewer bytes, more tokens"
