"""The commands of `python -m llamalib` and `python -m tools`."""

import copy
import os
import re
import subprocess
import sys
from unittest.mock import Mock

import pytest

import llamalib.__main__ as library
import tools.__main__ as tools
from llamalib.load import ROOT
from llamalib.tokenizer import Tokenizer


def shell(command, **environment):
    """Run a command of this Python in a shell."""
    return subprocess.run(
        f"'{sys.executable}' -m {command}",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )


needs_shell = pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")


@pytest.mark.parametrize(
    "package, word, said",
    [
        (library, "chatt", "chatt: did you mean chat?"),
        (library, "sing", "no such command; there are run, chat, fetch, "),
        (tools, "frames", "frames: did you mean frame?"),
        (tools, "verify", "did you mean python -m llamalib verify?"),
    ],
)
def test_a_wrong_command_is_told_the_right_one(package, word, said, capsys):
    assert package.main([word]) == 1
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""


@pytest.mark.parametrize(
    "package, words, usage, unused",
    [
        (library, "run --prmpt x", '[--tokens TOKENS] ["TEXT"]', "--prmpt"),
        (library, "run a b", "llamalib run [-h] [--prompt PROMPT] [--t", "b"),
        (library, "--seed", "llamalib [-h] COMMAND ...", "--seed"),
        (tools, "lab --no-browser", "[--copy] [flags ...]", "--no-browser"),
    ],
)
def test_a_wrong_argument_shows_the_commands_usage(
    package, words, usage, unused, capsys
):
    with pytest.raises(SystemExit) as ended:
        package.main(words.split())
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2 and usage in said
    assert said.endswith(f"unrecognized arguments: {unused}")


# -- run --

NASTY = 'A "quoted" $HOME $\\foo$ \\ prompt'


def test_run_prints_what_the_readmes_code_prints(capsys):
    """The model in a line, the text, the time per token."""
    assert library.main(["run", "--tokens", "2"]) == 0
    model, _, text, _, speed = capsys.readouterr().out.splitlines()
    assert model == library.describe(library.load())
    assert "bfloat16" in model  # the file's
    assert re.fullmatch(r"\d+\.\d ms per token", speed)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(
        r"^```python\n(.*?decode\(.*?)\n", readme, re.M | re.S
    )
    exec(code, {})
    assert text == library.PROMPT + capsys.readouterr().out.rstrip("\n")


@pytest.mark.parametrize("prompt", [NASTY, "", "one\ntwo", "Mira 🙂"])
def test_run_continues_any_prompt(prompt, monkeypatch, capsys):
    """As an argument, as an option, from the environment."""
    found = []
    for words in ([prompt], ["--prompt", prompt], []):
        monkeypatch.setenv("LLAMA_PROMPT", "another" if words else prompt)
        assert library.main(["run", *words]) == 0
        found.append(capsys.readouterr().out.rpartition("\n\n")[0])
    assert len(set(found)) == 1
    assert found[0].partition("\n\n")[2].startswith(prompt)


def test_an_error_escapes_a_name_s_control_characters(monkeypatch, capsys):
    monkeypatch.setenv("LLAMA_DIR", "no\x1b[2J such folder")
    assert library.main(["run"]) == 1
    error = capsys.readouterr().err
    assert "no\\x1b[2J such folder" in error and "\x1b" not in error


def test_run_escapes_control_characters(monkeypatch, capsys):
    def generate(llama, ids, max_new_tokens):
        return llama.tokenizer.encode("\x1b[2Jé\n\x9b", bos=False, eos=False)

    monkeypatch.setattr(library, "generate", generate)
    assert library.main(["run", "One", "--tokens", "9"]) == 0
    out = capsys.readouterr().out
    assert out.rpartition("\n\n")[0].endswith("One\\x1b[2Jé\n\\x9b")


@pytest.mark.parametrize(
    "pieces, sentence",
    [
        ([" Paris", ".", " The", " end", "."], " Paris."),
        ([" 3", ".", "14", " is", " pi", '."', "\n\nNo"], ' 3.14 is pi."'),
        (["\n", "Why", "?!", "\n"], "\nWhy?!"),
        ([" a", " list:\n- b"], " a list:"),
        ([" no", " end"], " no end"),
        ([], ""),
    ],
)
def test_run_ends_with_a_sentence_or_line(pieces, sentence, capsys):
    assert "".join(library.one_sentence(iter(pieces))) == sentence


def test_run_asks_for_no_more_than_it_needs(monkeypatch, capsys):
    """One token after the sentence, to know that it has ended."""
    asked = []

    def generate(llama, ids, max_new_tokens):
        for i in llama.tokenizer.encode(" A. B. C.", bos=False, eos=False):
            asked.append(i)
            yield i

    monkeypatch.setattr(library, "generate", generate)
    assert library.main(["run", "One"]) == 0
    assert "\n\nOne A.\n" in capsys.readouterr().out
    tokenizer = library.load().tokenizer
    assert tokenizer.decode(asked) in (" A. B", " A. ")


def test_run_of_a_text_that_ends_at_once(monkeypatch, capsys):
    monkeypatch.setattr(library, "generate", lambda llama, ids, **n: iter(()))
    assert library.main(["run", "Who are you?"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "\n\nWho are you?\n\npocket-llama ends the text here. To ask an "
        "Instruct model, use `python -m llamalib chat`\n"
    )


def test_run_of_a_model_with_nan(monkeypatch, capsys, pocket):
    """In one line."""
    broken = copy.deepcopy(pocket)
    broken.layers[0].attention.wq.weight[0] = float("nan")
    monkeypatch.setattr(library, "load", lambda: broken)
    assert library.main(["run"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("ValueError: the logits of pocket-llama are NaN: ")
    assert err.count("\n") == 1


def test_a_failure_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("LLAMA_DIR", "nowhere")
    assert library.main(["run"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    said = "nowhere does not exist (from LLAMA_DIR, or make's FOLDER)"
    assert err == f"FileNotFoundError: {said}\n"
    with pytest.raises(FileNotFoundError, match="^mine does not exist$"):
        library.load("mine")


@needs_shell
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_may_leave(unbuffered):
    """As `head` does, which closes its end of the pipe."""
    done = shell("llamalib run | true", PYTHONUNBUFFERED=unbuffered)
    assert (done.stdout, done.stderr) == ("", "")


def test_control_c_ends_without_a_traceback(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "load", stopped)
    assert library.main(["run"]) == 130
    assert capsys.readouterr().err == "\n"


@pytest.mark.parametrize("n", ["0", "-3"])
def test_run_names_its_own_option(capsys, n):
    assert library.main(["run", "--tokens", n]) == 1
    assert f"--tokens must be >= 1, got {n}" in capsys.readouterr().err


def test_run_takes_one_prompt(capsys):
    with pytest.raises(SystemExit):
        library.main(["run", "--prompt", "a", "b"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_control_c_while_the_library_is_imported(monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.delattr("llamalib.__main__")
    monkeypatch.delitem(sys.modules, "llamalib.__main__")
    monkeypatch.setattr(sys, "meta_path", [Mock(find_spec=stopped)])
    assert tools.main(["course"]) == 130


@pytest.mark.parametrize("data", [None, b"no JSON"])
def test_only_notebooks_are_executed(tmp_path, monkeypatch, capsys, data):
    """Before a cell of the series is written."""
    file = tmp_path / "a.ipynb"
    if data:
        file.write_bytes(data)
    monkeypatch.setattr("tools.frame.write_frames", lambda: 1 / 0)
    assert tools.main(["execute", str(file)]) == 1
    err = capsys.readouterr().err
    assert str(file) in err and err.count("\n") == 1


# -- fetch --


def test_a_bare_fetch_says_what_to_type():
    with pytest.raises(SystemExit) as ended:
        library.main(["fetch"])
    said = ended.value.code
    assert "`python -m llamalib fetch meta-llama/Llama-3.2-1B`" in said
    assert "fetch SmolLM2-135M-Instruct` needs no account" in said


@pytest.mark.parametrize("offline", ["0", "1"])
def test_fetching_without_a_network(offline, tmp_path):
    """An endpoint where nobody listens, and a client told not to try."""
    done = shell(
        "llamalib fetch Llama-3.9-none",
        HF_ENDPOINT="http://127.0.0.1:9",
        HF_HUB_OFFLINE=offline,
        HF_HOME=str(tmp_path),
    )
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (ROOT / "data" / "Llama-3.9-none" / "original").exists()


def test_run_says_what_is_no_text(monkeypatch, capsys, tmp_path):
    """Nothing, for a model without a begin token; a model's own file."""
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: [])
    assert library.main(["run", ""]) == 1
    assert "the prompt is empty: give a text" in capsys.readouterr().err
    model = tmp_path / "m.gguf"
    model.touch()
    assert library.main(["run", str(model)]) == 1
    assert "m.gguf is a model: name it by LLAMA_DIR" in capsys.readouterr().err
