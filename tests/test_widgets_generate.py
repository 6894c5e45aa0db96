"""The prompt box of notebook 09, driven by its buttons."""

import threading

import torch

import llamalib
from llamalib.viz import nb09 as widgets

PROMPT = "The capital of France is"


def greedy(llama, prompt, n):
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    new = llamalib.generate(llama, ids, max_new_tokens=n)
    return llama.tokenizer.decode(new)


def test_it_opens_with_a_continuation(pocket):
    stream = widgets.stream(pocket, PROMPT, 20)
    assert greedy(pocket, PROMPT, 20) in stream.text.value
    assert PROMPT in stream.text.value
    assert not stream.go.disabled and stream.stop.disabled
    bundle = stream._repr_mimebundle_()
    assert bundle["text/html"] == stream.text.value
    assert bundle["text/plain"] == f"Stream(prompt={PROMPT!r})"
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_another_prompt_streams_in_pieces(pocket):
    stream = widgets.stream(pocket, PROMPT, 10)
    seen = []
    stream.text.observe(lambda change: seen.append(change["new"]), "value")
    stream.prompt.value = "Once upon a time there was a <girl>"
    stream.go.click()
    stream.thread.join(60)
    assert len(seen) > 5
    assert all(len(a) < len(b) for a, b in zip(seen, seen[1:]))
    assert "&lt;girl&gt;" in seen[-1]


def test_the_stop_button_stops(pocket, monkeypatch):
    stream = widgets.stream(pocket, PROMPT, 3)
    stream.max_new_tokens, stream.prompt.value = 200, "Monday, Tuesday,"
    reached, go_on, original = threading.Event(), threading.Event(), None
    original = pocket.forward

    def waiting(tokens, *args, **options):
        if tokens.shape[1] == 1:  # the first decode step waits for the test
            reached.set()
            go_on.wait(60)
        return original(tokens, *args, **options)

    monkeypatch.setattr(pocket, "forward", waiting)
    stream.go.click()
    assert reached.wait(60)
    assert stream.go.disabled and not stream.stop.disabled
    before = stream.text.value
    stream.stop.click()
    go_on.set()
    stream.thread.join(60)
    assert not stream.thread.is_alive()
    assert stream.text.value == before  # nothing more was shown
    assert not stream.go.disabled and stream.stop.disabled
    # and the model is as it was: the next text is that of a fresh one
    monkeypatch.undo()
    stream.max_new_tokens = 20
    stream.go.click()
    stream.thread.join(60)
    fresh = widgets.stream(pocket, "Monday, Tuesday,", 20)
    assert stream.text.value == fresh.text.value != before


def test_temperature_draws(pocket):
    torch.manual_seed(0)
    stream = widgets.stream(pocket, "Once upon a time there was a", 12)
    first = stream.text.value
    stream.temperature.value = 1.5
    found = set()
    for _ in range(4):
        stream.go.click()
        stream.thread.join(60)
        found.add(stream.text.value)
    assert len(found | {first}) > 2


def test_a_prompt_that_is_too_long_is_said(pocket):
    stream = widgets.stream(pocket, PROMPT, 3)
    stream.max_new_tokens = 10**9
    stream.go.click()
    stream.thread.join(60)
    assert "positions" in stream.text.value
    assert not stream.go.disabled
