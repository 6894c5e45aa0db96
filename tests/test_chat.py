"""A conversation in the terminal: the ids that go in, what ends it."""

import datetime
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import llamalib
from llamalib import chat as chat_module
from llamalib.__main__ import main
from llamalib.chat import DATES, Chat, check_trained, opening_ids
from llamalib.load import ROOT
from llamalib.tokenizer import Tokenizer
from tests.conftest import published
from tests.helpers import (
    random_llama,
    small_config,
    small_ranks,
    write_checkpoint,
)
from tests.test_huggingface import tokenizer_json

DATE = "26 Jul 2024"
TOKENIZER = Tokenizer(small_ranks())


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def instruct(config=None, name="my-Instruct"):
    """Return a model whose <|eot_id|> was trained, by its embedding."""
    llama = random_llama(config or small_config(use_scaled_rope=True))
    llama.tokenizer, llama.name = Tokenizer(small_ranks()), name
    llama.tok_embeddings.weight[llama.tokenizer.eot_id] *= 4
    return llama


def said(text, *ends):
    """Return the ids of an answer, and what ends it."""
    return [*TOKENIZER.encode(text, bos=False, eos=False), *ends]


def conversation(script, most=100, context=500):
    """Return a chat whose model says these ids, and notes what it reads."""
    llama, script = instruct(), iter(script)
    llama.runs = []
    llama.register_forward_pre_hook(
        lambda llama, given: llama.runs.append(given[0].flatten().tolist())
    )

    def choose(logits):
        following = next(script)
        if following is KeyboardInterrupt:
            raise KeyboardInterrupt
        return torch.tensor([following])

    return Chat(llama, choose, [TOKENIZER.bos_id], most, context)


# -- what each turn runs ------------------------------------------------------


def test_each_turn_runs_only_what_is_new(capsys):
    answers = said("Paris.", TOKENIZER.eot_id) + said("Yes.", TOKENIZER.eot_id)
    chat = conversation(answers)
    chat.reply("And France?")
    before = len(chat.llama.runs)
    chat.reply("And Spain?")
    assert capsys.readouterr().out == "Paris.\nYes.\n"
    messages = [user("And France?"), assistant("Paris."), user("And Spain?")]
    assert chat.messages == [*messages, assistant("Yes.")]
    first = TOKENIZER.encode_chat(messages[:1])
    whole = TOKENIZER.encode_chat(messages)
    prompt, *one_by_one = chat.llama.runs[:before]
    paris = said("Paris.")
    assert prompt == first and one_by_one == [[i] for i in paris]
    # the next turn begins by the stop token, which has not been run
    second = whole[len(first) + len(paris) :]
    assert second[0] == TOKENIZER.eot_id and chat.llama.runs[before] == second
    chat.messages.clear()  # as /new does: the same text again
    chat.choose = lambda logits: torch.tensor([TOKENIZER.eot_id])
    chat.reply("And France?")
    assert chat.llama.runs[-1] == first[-1:]  # its logits are needed


def test_the_kept_cache_gives_what_a_fresh_one_gives(capsys):
    """Three turns, compared with `generate`."""
    llama, messages = instruct(), []
    opening = opening_ids(TOKENIZER, "Be brief.", DATE)
    chat = Chat(llama, lambda logits: logits.argmax(-1), opening, 12, 1000)
    for text in ("one", "two", "three"):
        messages.append(user(text))
        ids = opening + TOKENIZER.encode_chat(messages)[1:]
        new = list(llamalib.generate(llama, ids, max_new_tokens=12))
        expected = TOKENIZER.decode(new)
        messages.append(assistant(expected))
        chat.reply(text)
        answer = capsys.readouterr().out.removesuffix(" [12 tokens]\n")
        assert answer.rstrip("\n") == expected.rstrip("\n")
    assert chat.messages == messages


# -- what ends an answer ------------------------------------------------------


def test_what_ends_an_answer(capsys):
    """A stop token; the end of a message even where no file lists it."""
    for end in (TOKENIZER.eos_id, TOKENIZER.eot_id, TOKENIZER.eom_id):
        chat = conversation(said("Yes", end))
        if end != TOKENIZER.eos_id:
            chat.llama.tokenizer.stop_tokens = frozenset()
        chat.reply("a")
        assert capsys.readouterr().out == "Yes\n"


def test_a_full_context(capsys):
    n = len(TOKENIZER.encode_chat([user("a")])) + 3
    chat = conversation(said("z" * 9), context=n)
    chat.reply("a")
    note = f"[the context of {n} tokens is full: /new begins a new one]"
    assert capsys.readouterr().out == f"zzz {note}\n"
    messages = list(chat.messages)
    with pytest.raises(ValueError, match=rf"holds {n}: .*left out; /new"):
        chat.reply("b")
    assert chat.messages == messages


def test_an_interrupted_answer_is_kept():
    chat = conversation(said("On th", KeyboardInterrupt, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        chat.reply("a")
    messages = [user("a"), assistant("On th")]
    assert chat.messages == messages
    with pytest.raises(KeyboardInterrupt):
        chat.reply("go on")
    assert chat.ids == TOKENIZER.encode_chat([*messages, user("go on")])
    assert chat.messages == messages  # no answer: the question is left


# -- the system message -------------------------------------------------------


TEMPLATE = """
{%- macro turn(role, text) -%}
{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' ~ text }}<|eot_id|>
{%- endmacro -%}
{%- set system = '' -%}
{%- if messages[0].role == 'system' -%}
  {%- set system = messages[0].content | trim -%}
  {%- set messages = messages[1:] -%}
{%- endif -%}
{{ bos_token }}{{ turn('system', dates ~ system) }}
{%- for m in messages %}{{ turn(m.role, m.content | trim) }}{% endfor -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
"""


@pytest.mark.parametrize("file", ["pocket", "published"])
def test_the_ids_of_the_transformers_library(file, tmp_path):
    """With a template that says what Meta's says.

    Meta's own, if $LLAMA3_TEMPLATE names a file with it.
    """
    from transformers import PreTrainedTokenizerFast

    pocket = ROOT / "data" / "pocket-llama" / "tokenizer.model"
    file = pocket if file == "pocket" else published("LLAMA3_TOKENIZER")
    template, ours = TEMPLATE, Tokenizer.from_file(file)
    if path := os.environ.get("LLAMA3_TEMPLATE"):
        template = Path(path).read_text(encoding="utf-8")
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_json(file, tmp_path / "tokenizer.json")),
        bos_token="<|begin_of_text|>",
    )
    messages = [user(" Hi\n"), assistant("Yes?"), user("1 + 1 = ?\n\n2")]
    for system in ("", "Be brief.", "  1\n\n 2…  "):
        expected = theirs.apply_chat_template(
            [{"role": "system", "content": system}] * bool(system) + messages,
            chat_template=template,
            add_generation_prompt=True,
            return_dict=False,
            dates=DATES.format(DATE),
            date_string=DATE,
        )
        opening = opening_ids(ours, system, DATE)
        assert opening + ours.encode_chat(messages)[1:] == expected


# -- the terminal -------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return str(write_checkpoint(tmp_path / "m", instruct()))


@pytest.fixture
def talk(folder, monkeypatch, capsys):
    """A function: what is typed, to the exit status and what is printed."""

    def run(lines, *options):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        greedy = "--temperature", "0", "--max-new-tokens", "8"
        status = main(["chat", folder, *greedy, *options])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_a_conversation(talk, monkeypatch):
    """Commands and empty lines are no messages; /new forgets; EOF ends."""
    seen, encode = [], Tokenizer.encode_chat

    def noted(tokenizer, messages):
        texts = [m["content"] for m in messages if m["role"] == "user"]
        seen.append(texts)
        return encode(tokenizer, messages)

    monkeypatch.setattr(Tokenizer, "encode_chat", noted)
    status, out, err = talk("One\n\n /help\n two \n/New\nthree\n")
    assert (status, err) == (0, "") and out.startswith("m: L=2, D=64")
    assert seen[-3:] == [["One"], ["One", "two"], ["three"]]
    assert out.count("you> ") == 7 and out.count("/bye or Ctrl-D ends") == 2
    status, out, _ = talk("One\n/BYE\ntwo\n")
    assert status == 0 and out.count("you> ") == 2


def test_a_message_that_does_not_fit(talk):
    """The conversation goes on without it, also at the shortest context."""
    lines = "Hi\n" + "long " * 100 + "\n\udcff\nHi\n"
    status, out, _ = talk(lines, "--context", "150")
    assert status == 0 and "Traceback" not in out
    assert out.count("the message is left out; /new begins a new one]") == 1
    assert "surrogates not allowed]" in out
    _, _, err = talk("a\n", "--date", "", "--context", "1")
    least = err.partition("must be from ")[2].partition(" to")[0]
    status, out, _ = talk("a\n", "--date", "", "--context", least)
    assert status == 0 and "is full: /new begins" in out
    assert "left out" not in out


def test_dates(talk, monkeypatch):
    """Today's, from Llama 3.1 on; --date says another, or none."""
    dates = []
    monkeypatch.setattr(
        chat_module,
        "opening_ids",
        lambda t, system, date: dates.append(date) or [t.bos_id],
    )
    for options in ([], ["--date", ""], ["--date", DATE]):
        talk("", *options)
    today = datetime.date.today()
    days = [today - datetime.timedelta(n) for n in (0, 1)]
    assert dates[0] in [f"{day:%d %b %Y}" for day in days]
    old = instruct(small_config())  # RoPE is not scaled: Llama 3
    monkeypatch.setattr(chat_module, "load", lambda folder: old)
    talk("")
    assert dates[1:] == ["", DATE, ""]


@pytest.mark.parametrize(
    "options, said",
    [
        (["--context", "5"], "context must be from "),
        (["--max-new-tokens", "0"], "max_new_tokens must be a whole number"),
        (["--temperature", "-1"], "temperature must be >= 0, got -1.0"),
        (["--seed", "-1"], "2**63 - 1, or None, got -1"),
    ],
)
def test_wrong_options(talk, options, said):
    status, _, err = talk("Hi\n", *options)
    assert status == 1 and said in err


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_control_c_in_an_answer(folder):
    """As a terminal sends it; the conversation goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "llamalib", "chat", folder]
        + ["--max-new-tokens", "100000", "--context", "110000"]
        + ["--temperature", "0"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # a shell starts `make test &` with this signal ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        process.stdin.write(b"Hi\n")
        process.stdin.flush()
        out = b""
        while len(out.partition(b"you> ")[2]) < 20:  # its answer has begun
            out += process.stdout.read(1)
            assert process.poll() is None, out
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(b"/bye\n", timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and b"Traceback" not in rest
    assert rest.endswith(b" [interrupted]\n\nyou> ")


# -- which models can chat ----------------------------------------------------


def test_the_pocket_is_refused(capsys):
    """In one line, which says what it can do."""
    assert main(["chat"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(
        "ValueError: pocket-llama was not trained for Llama 3's conv"
    )
    assert '`python -m llamalib run "…"`' in err


def test_which_models_are_refused():
    check_trained(instruct())
    check_trained(instruct(name="mine"))  # a name alone says nothing
    llama = instruct()
    llama.tok_embeddings.weight[llama.tokenizer.eot_id] /= 4
    with pytest.raises(ValueError, match="is that of an unused token"):
        check_trained(llama)
    llama = instruct()
    llama.tokenizer.stop_tokens = frozenset([llama.tokenizer.eos_id])
    with pytest.raises(ValueError, match="do not list <.eot_id.>"):
        check_trained(llama)
    llama.tokenizer.eot_id = None  # another family's
    with pytest.raises(ValueError, match="tokenizer has no <.eot_id.>"):
        check_trained(llama)


def test_white_space_around_an_answer():
    """It is stripped in the next prompt, so the cache goes back."""
    # " ", "aa", "aa" become "aa", "aa": one of them is where it was
    script = said(" aaaa ", TOKENIZER.eot_id, TOKENIZER.eot_id)
    chat = conversation(script)
    chat.reply("a")
    chat.reply("b")
    messages = [user("a"), assistant("aaaa"), user("b")]
    assert chat.ids == TOKENIZER.encode_chat(messages)
    same = len(TOKENIZER.encode_chat(messages[:1]))
    assert chat.cache.length == len(chat.ids)
    assert chat.llama.runs[-1] == chat.ids[same:]
