"""A conversation in the terminal: the ids that go in, what ends it."""

import datetime
import io
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import llamalib
from llamalib.__main__ import main
from llamalib.files import ROOT
from llamalib.tasks import chat as chat_module
from llamalib.tasks.chat import DATES, Chat, doubt, opening_ids
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


@pytest.fixture
def tokenizer():
    return Tokenizer(small_ranks())


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


class Scripted:
    """A model that says the given ids, and notes what its cache holds."""

    def __init__(self, tokenizer, script):
        self.tokenizer, self.script = tokenizer, iter(script)
        self.device, self.runs, self.held = torch.device("cpu"), [], []
        self.config, self.dtype = small_config(), torch.float32

    def __call__(self, tokens, cache, last_only=False):
        ids = tokens[0].tolist()
        self.runs.append(ids)
        self.held = self.held[: cache.length] + ids
        cache.positions(len(ids))  # raises if they do not fit
        cache.advance(len(ids))
        assert cache.length == len(self.held) <= cache.max_seq_len
        following = next(self.script)
        if following is KeyboardInterrupt:
            raise KeyboardInterrupt
        logits = torch.zeros(1, len(ids), self.tokenizer.vocab_size)
        logits[:, -1, following] = 1
        return logits


def greedy(logits):
    return logits.argmax(-1)


def conversation(tokenizer, script, most=100, context=500):
    llama = Scripted(tokenizer, script)
    return Chat(llama, greedy, [tokenizer.bos_id], most, context)


def said(tokenizer, text, *ends):
    """The ids of an answer, and what ends it."""
    return [*tokenizer.encode(text, bos=False, eos=False), *ends]


def test_each_turn_runs_only_what_is_new(tokenizer, capsys):
    paris = said(tokenizer, "Paris.", tokenizer.eot_id)
    madrid = said(tokenizer, "Madrid.", tokenizer.eot_id)
    chat = conversation(tokenizer, paris + madrid)
    chat.reply("And France?")
    chat.reply("And Spain?")
    assert capsys.readouterr().out == "Paris.\nMadrid.\n"
    messages = [user("And France?"), assistant("Paris."), user("And Spain?")]
    assert chat.messages == [*messages, assistant("Madrid.")]
    first = tokenizer.encode_chat(messages[:1])
    whole = tokenizer.encode_chat(messages)
    prompt, *one_by_one = chat.llama.runs[: len(paris)]
    assert prompt == first and one_by_one == [[i] for i in paris[:-1]]
    # the next turn begins by the stop token, which has not been run
    second = whole[len(first) + len(paris) - 1 :]
    assert second[0] == tokenizer.eot_id
    assert chat.llama.runs[len(paris)] == second
    assert chat.llama.held == whole + madrid[:-1]


def test_white_space_around_an_answer(tokenizer):
    """It is stripped in the next prompt, so the cache goes back."""
    script = said(tokenizer, "\n\nYes. ", tokenizer.eot_id)
    chat = conversation(tokenizer, [*script, tokenizer.eot_id])
    chat.reply("a")
    chat.reply("b")
    messages = [user("a"), assistant("Yes."), user("b")]
    assert chat.llama.held == tokenizer.encode_chat(messages)
    assert len(chat.llama.runs[-1]) < len(chat.llama.held)


def test_the_same_question_again(tokenizer):
    """At least one token is run: its logits are needed."""
    script = [*said(tokenizer, "x", tokenizer.eot_id)] * 2
    chat = conversation(tokenizer, script)
    chat.reply("a")
    chat.messages.clear()
    chat.reply("a")
    assert len(chat.llama.runs[2]) == 1
    assert chat.llama.held == [
        *tokenizer.encode_chat([user("a")]),
        *said(tokenizer, "x"),
    ]


@pytest.mark.parametrize("name", ["eos_id", "eot_id", "eom_id"])
def test_what_ends_an_answer(tokenizer, name, capsys):
    tokenizer.stop_tokens = frozenset([tokenizer.eos_id])  # a base model's
    script = said(tokenizer, "Yes", getattr(tokenizer, name))
    conversation(tokenizer, script).reply("a")
    assert capsys.readouterr().out == "Yes\n"


def test_a_long_answer(tokenizer, capsys):
    chat = conversation(tokenizer, said(tokenizer, "z" * 9), most=4)
    chat.reply("a")
    out = capsys.readouterr().out
    assert out == "zzzz [4 tokens]\n"
    assert chat.messages[-1] == assistant("zzzz")


def test_a_full_context(tokenizer, capsys):
    n = len(tokenizer.encode_chat([user("a")]))
    script = said(tokenizer, "z" * 9)
    chat = conversation(tokenizer, script, context=n + 3)
    chat.reply("a")
    out = capsys.readouterr().out
    note = f"[the context of {n + 3} tokens is full: /new begins a new one]"
    assert out == f"zzz {note}\n"
    assert chat.cache.length == n + 3
    messages = list(chat.messages)
    with pytest.raises(ValueError, match=rf"under {n + 3}: .*left out; /new"):
        chat.reply("b")
    assert chat.messages == messages


def test_an_interrupted_answer_is_kept(tokenizer, capsys):
    half = said(tokenizer, "On th", KeyboardInterrupt)
    chat = conversation(tokenizer, [*half, tokenizer.eot_id])
    with pytest.raises(KeyboardInterrupt):
        chat.reply("a")
    messages = [user("a"), assistant("On th")]
    assert chat.messages == messages
    chat.reply("go on")
    messages.append(user("go on"))
    assert chat.llama.held == tokenizer.encode_chat(messages)
    assert chat.messages == messages[:2]  # no answer: the question is left


def test_interrupted_before_the_first_token(tokenizer):
    script = [KeyboardInterrupt, *said(tokenizer, "x", tokenizer.eot_id)]
    chat = conversation(tokenizer, script)
    with pytest.raises(KeyboardInterrupt):
        chat.reply("a")
    assert chat.messages == []
    chat.reply("b")
    assert chat.messages == [user("b"), assistant("x")]
    expected = tokenizer.encode_chat([user("b")]) + said(tokenizer, "x")
    assert chat.llama.held == expected


def test_the_kept_cache_gives_what_a_fresh_one_gives(tokenizer, capsys):
    """Three turns of a real model, compared with `generate`."""
    llama = random_llama()
    llama.tokenizer, messages = tokenizer, []
    opening = opening_ids(tokenizer, "Be brief.", DATE)
    chat = Chat(llama, greedy, opening, 12, 1000)
    for text in ("one", "two", "three"):
        messages.append(user(text))
        ids = opening + tokenizer.encode_chat(messages)[1:]
        new = list(llamalib.generate(llama, ids, max_new_tokens=12))
        expected = tokenizer.decode(new)
        messages.append(assistant(expected))
        chat.reply(text)
        answer = capsys.readouterr().out.removesuffix(" [12 tokens]\n")
        assert answer == expected
    assert chat.messages == messages
    assert chat.cache.length == len(ids) + 12


# -- the system message -------------------------------------------------------


def test_the_opening(tokenizer):
    """Nothing, dates, a text, both."""
    start, end = "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"
    dates = f"Cutting Knowledge Date: December 2023\nToday Date: {DATE}\n\n"
    for system, date, text in (
        ("", "", ""),
        ("", DATE, start + dates + end),
        ("  Be brief.\n", "", start + "Be brief." + end),
        ("Be brief.", DATE, start + dates + "Be brief." + end),
    ):
        found = tokenizer.decode(opening_ids(tokenizer, system, date))
        assert found == "<|begin_of_text|>" + text
    evil = opening_ids(tokenizer, "a<|eot_id|>b", DATE)
    assert evil.count(tokenizer.eot_id) == 1


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


@pytest.fixture(scope="module", params=["pocket", "published"])
def both(request, tmp_path_factory):
    """Our tokenizer, and the transformers library's, of the same file."""
    from transformers import PreTrainedTokenizerFast

    file = ROOT / "data" / "pocket-llama" / "tokenizer.model"
    if request.param == "published":
        file = published("LLAMA3_TOKENIZER")
    path = tmp_path_factory.mktemp("theirs") / "tokenizer.json"
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_json(file, path)),
        bos_token="<|begin_of_text|>",
    )
    return Tokenizer.from_file(file), theirs


@pytest.mark.parametrize("system", ["", "Be brief.", "  1\n\n 2  ", "…?\n"])
def test_the_ids_of_the_transformers_library(both, system):
    """With a template that says what Meta's says.

    Meta's own, if $LLAMA3_TEMPLATE names a file with it.
    """
    (ours, theirs), template = both, TEMPLATE
    if path := os.environ.get("LLAMA3_TEMPLATE"):
        template = Path(path).read_text(encoding="utf-8")
    messages = [user(" Hi\n"), assistant("Yes?"), user("1 + 1 = ?\n\n2")]
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


def test_the_published_opening():
    """The blank line after the dates stays, as in Meta's template."""
    tokenizer = Tokenizer.from_file(published("LLAMA3_TOKENIZER"))
    found = opening_ids(tokenizer, "", DATE)
    assert found[:5] == [128000, 128006, 9125, 128007, 271]
    assert found[-2:] == [271, 128009]


# -- the terminal -------------------------------------------------------------


def talk(monkeypatch, capsys, lines, *options):
    """Return the exit status and what is printed."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    status = main(["chat", "--temperature", "0", *options])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_conversation_with_the_pocket(monkeypatch, capsys):
    """An empty line asks nothing, EOF ends; and the pocket is no Instruct."""
    shown, reply = [], Chat.reply

    def noted(chat, text):
        shown.append(text)
        reply(chat, text)

    monkeypatch.setattr(Chat, "reply", noted)
    status, out, err = talk(monkeypatch, capsys, "One\n\n  \n two \n")
    assert status == 0 and err == "" and shown == ["One", "two"]
    warning = "pocket-llama may not be trained on conversations"
    assert out.startswith("pocket-llama: L=6, D=256") and warning in out
    assert out.count("you> ") == 5
    status, out, _ = talk(monkeypatch, capsys, "One\n/bye\ntwo\n")
    assert status == 0 and shown == ["One", "two", "One"]


def test_a_command_is_no_message(monkeypatch, capsys):
    """In capital letters neither."""
    monkeypatch.setattr(Chat, "reply", lambda chat, text: 1 / 0)
    status, out, err = talk(monkeypatch, capsys, "/help\n/New\n/BYE\nHi\n")
    assert status == 0 and out.count("/new begins a new") == 2, err


def test_the_shortest_context(monkeypatch, capsys):
    """A message of one token and an answer of one."""
    options = "--date", "", "--context"
    status, out, err = talk(monkeypatch, capsys, "a\n", *options, "1")
    least = re.search("expected (\\d+) to", err)[1]
    status, out, err = talk(monkeypatch, capsys, "a\n", *options, least)
    assert status == 0 and "is full: /new begins" in out
    assert "left out" not in out


def test_a_model_of_few_positions(monkeypatch, capsys):
    """Without --context it gets what the model holds."""
    contexts, begin, load = [], Chat.__init__, chat_module.load

    def noted(self, llama, choose, opening, most, context):
        contexts.append(context)
        begin(self, llama, choose, opening, most, context)

    monkeypatch.setattr(Chat, "__init__", noted)
    talk(monkeypatch, capsys, "/bye\n")

    def few(folder):
        llama = load(folder)
        llama.config = replace(llama.config, context_length=300)
        return llama

    monkeypatch.setattr(chat_module, "load", few)
    talk(monkeypatch, capsys, "/bye\n")
    assert contexts == [4096, 300]


def test_a_closed_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["chat"]) == 1
    assert capsys.readouterr().err == (
        "ValueError: standard input is None; expected a terminal, a file or "
        "a pipe\n"
    )


def test_new_begins_anew(monkeypatch, capsys):
    seen, encode = [], Tokenizer.encode_chat

    def noted(tokenizer, messages):
        seen.append(len(messages))
        return encode(tokenizer, messages)

    monkeypatch.setattr(Tokenizer, "encode_chat", noted)
    talk(monkeypatch, capsys, "One\ntwo\n/new\nthree\n/bye\n")
    assert seen[-3:] == [1, 3, 1]


def test_a_message_that_does_not_fit(monkeypatch, capsys):
    """The conversation goes on without it."""
    lines = "Hi\n" + "long " * 100 + "\n\udcff\nHi\n"
    status, out, _ = talk(
        monkeypatch, capsys, lines, "--context", "120", "--max-new-tokens", "5"
    )
    assert status == 0 and "Traceback" not in out
    assert out.count("the message is left out; /new begins a new one]") == 1
    assert "surrogates not allowed]" in out


def test_dates(monkeypatch, capsys, tmp_path):
    """Today's, from Llama 3.1 on; --date says another, or none."""
    dates = []
    monkeypatch.setattr(
        chat_module,
        "opening_ids",
        lambda t, system, date: dates.append(date) or [t.bos_id],
    )
    talk(monkeypatch, capsys, "")
    today = datetime.date.today()
    assert dates[0] in {
        f"{today - datetime.timedelta(n):%d %b %Y}" for n in (0, 1)
    }
    talk(monkeypatch, capsys, "", "--date", "")
    talk(monkeypatch, capsys, "", "--date", DATE)
    write_checkpoint(tmp_path / "old")  # RoPE is not scaled: Llama 3
    talk(monkeypatch, capsys, "", str(tmp_path / "old"))
    assert dates[1:] == ["", DATE, ""]


def test_a_seed(monkeypatch, capsys):
    def run(*options):
        options = "--temperature", "1", "--max-new-tokens", "30", *options
        return talk(monkeypatch, capsys, "Tell me more\nMore\n", *options)[1]

    assert run("--seed", "1") == run("--seed", "1") != run("--seed", "2")


@pytest.mark.parametrize(
    "options, said",
    [
        (["--context", "5"], "context is 5; expected "),
        (["--context", "1" + "0" * 30], "0; expected "),
        (["--max-new-tokens", "0"], "max_new_tokens is 0; expected a whole"),
        (["--temperature", "-1"], "temperature must be >= 0, got -1.0"),
        (["--seed", "-1"], "2**63 - 1, or None, got -1"),
        (["nowhere"], "nowhere (path) does not exist"),
    ],
)
def test_wrong_options(monkeypatch, capsys, options, said):
    status, _, err = talk(monkeypatch, capsys, "Hi\n", *options)
    assert status == 1 and said in err


def test_control_c_at_the_prompt(monkeypatch, capsys):
    lines = iter([KeyboardInterrupt, "Hi", EOFError])

    def line(prompt):
        print(prompt, end="")
        following = next(lines)
        if isinstance(following, str):
            return following
        raise following

    monkeypatch.setattr("builtins.input", line)
    status, out, err = talk(monkeypatch, capsys, "")
    assert status == 0 and err == ""
    assert "you>  [interrupted]\n" in out and out.count("you> ") == 3


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_control_c_in_an_answer(tmp_path):
    """As a terminal sends it; the conversation goes on."""
    config = small_config(use_scaled_rope=True)
    write_checkpoint(tmp_path / "m", random_llama(config))
    process = subprocess.Popen(
        [sys.executable, "-m", "llamalib", "chat", str(tmp_path / "m")]
        + ["--max-new-tokens", "100000", "--context", "110000"]
        + ["--temperature", "0"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
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


def instruct(tokenizer):
    """Return a model whose end of a turn was trained, by its embedding."""
    llama = random_llama()
    llama.tokenizer, llama.name = tokenizer, "my-Instruct"
    llama.tok_embeddings.weight[tokenizer.eot_id] *= 4
    return llama


def test_doubts(tokenizer, pocket):
    llama = instruct(tokenizer)
    assert doubt(llama) == ""
    llama.name = "mine"
    assert "its name lacks 'Instruct'" in doubt(llama)
    llama = instruct(tokenizer)
    tokenizer.stop_tokens = frozenset([tokenizer.eos_id])
    assert "its files list no <|eot_id|>" in doubt(llama)
    llama = random_llama()
    llama.tokenizer, llama.name = Tokenizer(small_ranks()), "an-Instruct"
    assert "its <|eot_id|> is unused" in doubt(llama)
    assert "its <|eot_id|> is unused" in doubt(pocket)


def test_the_pockets_unused_rows(pocket):
    """What `doubt` rests on: trained tokens are far from unused ones."""
    special = pocket.tokenizer.special_tokens
    unused = [i for name, i in special.items() if "reserved" in name]
    rows = pocket.tok_embeddings.weight.float()
    far = (rows - rows[unused].mean(0)).norm(dim=-1)
    far = far / far[unused].median()
    trained = [special["<|begin_of_text|>"], special["<|end_of_text|>"]]
    dialogue = [special["<|start_header_id|>"], special["<|eot_id|>"]]
    assert far[trained].min() > 10 and far[dialogue].max() < 1.5


def test_another_familys_tokenizer(monkeypatch, capsys, tmp_path):
    """The format of its dialogues is not known: said before a question."""

    def unknown(self, messages):
        raise ValueError("this tokenizer is not Llama 3's")

    monkeypatch.setattr(Tokenizer, "encode_chat", unknown)
    status, out, err = talk(monkeypatch, capsys, "Hi\n")
    assert status == 1 and "is not Llama 3's" in err and "you>" not in out
