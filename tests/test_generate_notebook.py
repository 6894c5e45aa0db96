"""The chat of notebook 09: its widget, and the reader's own loop in it."""

import re
import threading

import pytest
from matplotlib import pyplot as plt

import llamalib
from lessons import n09_generate as nb09
from tests.helpers import code_cells
from tests.test_chat import instruct
from tools.notebooks import NOTEBOOKS

TALK = [
    {"role": "user", "content": "Is 1 < 2?"},
    {"role": "assistant", "content": "Yes & no."},
]


def send(chat, text=None):
    if text is not None:
        chat.message.value = text
    chat.go.click()
    chat.thread.join(60)
    assert not chat.thread.is_alive()
    assert not chat.go.disabled and chat.stop.disabled
    return re.sub("<.*?>", "", chat.text.value)


def test_a_chat_grows_piece_by_piece():
    asked, seen = [], []

    def answer(messages):
        asked.append(messages)
        return iter(["Fine", ", <b>", "thanks"])

    chat = nb09.chat(answer, TALK)
    assert "you: Is 1 &lt; 2?" in chat.still and "Yes &amp; no." in chat.still
    bundle = chat._repr_mimebundle_()
    assert bundle["text/html"] == f"{chat.still}<p><em>{nb09.SAVED}</em></p>"
    assert bundle["text/plain"] == "Chat(messages=2)"
    chat.text.observe(lambda change: seen.append(change["new"]), "value")
    said = send(chat, " How are you? \n")
    first = "you: How are you?\n\nFine, &lt;b&gt;thanks\n\nyou: Is 1"
    assert said.startswith(first)  # the newest is next to the field
    assert len(seen) == 4  # the question, and three pieces
    assert all(len(a) < len(b) for a, b in zip(seen, seen[1:]))
    assert chat.message.value == ""
    question = {"role": "user", "content": "How are you?"}
    reply = {"role": "assistant", "content": "Fine, <b>thanks"}
    assert asked == [[*TALK, question]]
    send(chat, "And now?")  # the whole conversation goes along
    assert asked[1][:4] == [*TALK, question, reply] and len(asked[1]) == 5
    assert len(TALK) == 2  # the notebook's own list stays


def test_a_chat_survives_what_is_empty():
    chat = nb09.chat(lambda messages: iter([]), TALK)
    before = chat.text.value
    for nothing in ("", "  \n"):
        send(chat, nothing)
        assert chat.text.value == before and chat.messages == TALK
    assert send(chat, "Well?").startswith("you: Well?\n\n[no answer]")
    assert chat.messages == TALK  # a question without an answer is left out

    def full(messages):
        raise ValueError("the context is <full>")

    chat.answer = full
    said = send(chat, "Well?")
    assert said.startswith("you: Well?\n\n[the context is &lt;full&gt;]")
    assert chat.messages == TALK


def test_a_chat_can_be_stopped_and_cleared():
    reached, go_on = threading.Event(), threading.Event()

    def answer(messages):
        yield "one"
        reached.set()
        go_on.wait(60)
        yield " two"

    chat = nb09.chat(answer, TALK)
    chat.message.value = "Count!"
    chat.go.click()  # returns at once: the page is not frozen
    assert reached.wait(60) and "one" in chat.text.value
    assert chat.go.disabled and not chat.stop.disabled
    chat.stop.click()
    go_on.set()
    chat.thread.join(60)
    assert chat.messages[-1]["content"] == "one"  # as far as it came
    assert not chat.go.disabled and chat.stop.disabled
    chat.new.click()
    assert chat.messages == [] and "one" not in chat.text.value
    assert send(chat, "Again!") == "you: Again!\n\none two"
    # a new conversation during an answer stops it
    reached.clear(), go_on.clear()
    chat.message.value = "Once more!"
    chat.go.click()
    assert reached.wait(60)
    threading.Timer(0.2, go_on.set).start()
    chat.new.click()
    assert not chat.thread.is_alive() and chat.messages == []
    assert re.sub("<.*?>", "", chat.text.value) == ""


def test_enter_sends_a_message():
    chat = nb09.chat(lambda messages: iter([messages[-1]["content"] + "!"]))
    chat.message._handle_custom_msg({"event": "submit"}, [])
    chat.message.set_state({"value": "Hello"})
    chat.thread.join(60)
    assert chat.messages[-1]["content"] == "Hello!"


@pytest.fixture
def answers(monkeypatch):
    """Run 09 up to its widget on a model; return the names of its cells."""

    def run(llama):
        monkeypatch.setattr(llamalib, "load", lambda *args, **how: llama)
        names = {"__name__": "__main__"}
        for _, source in code_cells(NOTEBOOKS / "09_generate.ipynb"):
            if "lesson.chat(" in source:
                plt.close("all")
                return names
            exec(source, names)

    return run


def test_the_loop_of_09_answers_in_the_models_form(answers, capsys):
    llama = instruct()
    names, t = answers(llama), llama.tokenizer
    said = capsys.readouterr().out
    assert "<|start_header_id|>user" in said and "you:   And of It" in said
    ids = t.encode_chat(TALK[:1])
    whole = list(llamalib.generate(llama, ids, max_new_tokens=100, stop=()))
    end = whole.index(whole[9])
    t.stop_tokens = frozenset({whole[9]})
    chat = nb09.chat(names["answer"])
    send(chat, TALK[0]["content"])
    assert chat.messages == [
        TALK[0],
        {"role": "assistant", "content": t.decode(whole[:end])},
    ]


def test_the_loop_of_09_continues_a_text(answers, pocket, capsys):
    names = answers(pocket)
    assert "was not trained for dialogues" in capsys.readouterr().out
    chat = nb09.chat(names["answer"], TALK)
    send(chat, "Monday, Tuesday,")
    assert chat.messages[-1]["content"].startswith(" Wednesday, Thursday")
