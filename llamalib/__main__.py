r"""The commands: python -m llamalib run, chat, fetch, convert, verify."""

import argparse
import difflib
import io
import os
import sys
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from .checks import check_first_pass, printable, require, shown
from .fetch import PACKED, fetch
from .generate import generate
from .load import ROOT, describe, find_checkpoint, load
from .save import has_metas_tokenizer, require_new, save, save_hugging_face
from .threads import choose_threads

PROMPT = "The capital of France is"
REAL = "meta-llama/Llama-3.2-1B"
LONGEST = 100  # new tokens, if the sentence does not end before
ENDS = (".", "!", "?", "…", "。", "！", "？")
FOUND = ROOT / "data" / "Llama-3.2-1B" / "original"  # `load` looks there


def main(argv=None) -> int:
    """Run one command and return the exit status."""
    return execute(parser(), {}, argv)


def execute(whole, elsewhere: dict[str, str], argv=None) -> int:
    """Run the command that the words name; an error becomes one line.

    elsewhere: what to type instead of a word that is no command here.
    """
    words = sys.argv[1:] if argv is None else argv
    word = words[0] if words else "help"
    if word == "help":
        words = []
    elif not word.startswith("-") and word not in whole.commands:
        print(unknown(word, whole.commands, elsewhere), file=sys.stderr)
        return 1
    found, rest = whole.parse_known_args(words)
    if rest:  # with the usage of the command, not of all
        unused = " ".join(rest)
        one = whole.commands.get(word, whole)
        one.error(f"unrecognized arguments: {unused}")
    arguments = vars(found)
    command = arguments.pop("command")
    try:
        if sys.stdout is None:
            raise RuntimeError("standard output is closed: open it to read")
        # Windows pipes may have an encoding without the letter of a text
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        status = command(**arguments) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, like `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130  # as a shell reports Ctrl-C
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        words = f"{type(error).__name__}: {error}"
        print(printable(words), file=sys.stderr)  # it may name a file
    return 1


def unknown(word: str, commands, elsewhere: dict[str, str]) -> str:
    """Return what to say of a word that is no command."""
    for close in difflib.get_close_matches(word, [*commands, *elsewhere], 1):
        return f"{word}: did you mean {elsewhere.get(close, close)}?"
    return f"{word:.80}: no such command; there are {', '.join(commands)}"


class Parser(argparse.ArgumentParser):
    """A parser with its commands' parsers, by name."""

    commands: dict[str, "Parser"]


def new_parser(program: str):
    """Return a parser, and a function that adds a command to it."""
    whole = Parser(prog=program)
    whole.set_defaults(command=whole.print_help)
    group = whole.add_subparsers(metavar="COMMAND")
    whole.commands = group.choices

    def add(name, function, help):
        command = group.add_parser(name, help=help)
        command.set_defaults(command=function)
        return command.add_argument

    return whole, add


def later(where: str, **given):
    """Return the function "package.module.name", imported when called."""
    module, _, name = where.rpartition(".")

    def call(**arguments):
        return getattr(import_module(module), name)(**given, **arguments)

    return call


def parser() -> Parser:
    """Return the parser; each command's arguments are its function's."""
    whole, add = new_parser("python -m llamalib")
    tokens = add("run", run, "continue a text")
    suppress = argparse.SUPPRESS  # two ways to give one argument
    prompt = whole.commands["run"].add_mutually_exclusive_group().add_argument
    how = dict(nargs="?", default=suppress, metavar='"TEXT"')
    prompt("prompt", **how, help=f"in quotes (default: {PROMPT!r})")
    prompt("--prompt", help="the same (default: $LLAMA_PROMPT)")
    tokens("--tokens", type=int, help="how many, past the end of a sentence")
    talk = later("llamalib.chat.talk")
    chat = add("chat", talk, "talk to an Instruct model")
    chat("folder", nargs="?", help="default: as `load` finds it")
    chat("--system", default="", help="what the model is told before you ask")
    chat("--date", help="for Meta's template (default: today; '': no dates)")
    chat(
        "--temperature",
        type=float,
        default=0.6,
        help="0: greedy (default: 0.6)",
    )
    chat("--seed", type=int, help="gives the same answers again")
    chat(
        "--max-new-tokens",
        type=int,
        default=512,
        help="per answer (default: 512)",
    )
    chat("--context", type=int, help="tokens it remembers (default: 4096)")
    model = add("fetch", fetch_model, "download a model")
    names = ", ".join(PACKED)
    model("model", nargs="?", help=f"{names} or OWNER/NAME, as in {REAL}")
    convert = add("convert", convert_folder, "write a model in another format")
    convert(
        "source",
        type=Path,
        help="a folder in Hugging Face's format, of which it writes Meta's; "
        "or a GGUF file: it writes Meta's format if the tokenizer is Llama "
        "3's, otherwise Hugging Face's",
    )
    convert("target", type=Path, help="a new folder")
    report = later("llamalib.verify.print_report")
    verify = add("verify", report, "compare a download with published facts")
    verify("folder", nargs="?", type=Path, help="default: as for chat")
    return whole


def run(prompt: str | None = None, tokens: int | None = None) -> None:
    """Continue a prompt greedily, and say how long a token takes.

    tokens: the most new ones; None: up to the end of the sentence or line.
    """
    require(
        tokens is None or tokens > 0, f"--tokens must be >= 1, got {tokens}"
    )
    if prompt is None:
        prompt = os.environ.get("LLAMA_PROMPT", PROMPT)
    require(
        not (prompt.endswith(".gguf") and os.path.exists(prompt)),
        f"{prompt} is a model: name it by LLAMA_DIR, and give a text",
    )
    llama = load()
    choose_threads(llama)
    processes = getattr(llama, "processes", None)  # if torchrun started us
    if processes and processes.rank > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    require(ids, "the prompt is empty: give a text that the model continues")
    check_first_pass(llama)
    n = LONGEST if tokens is None else tokens
    pieces = llama.tokenizer.decode_stream(
        generate(llama, ids, max_new_tokens=n)
    )
    print(f"{describe(llama)}\n\n{prompt}", end="", flush=True)
    times = []
    for piece in pieces if tokens else one_sentence(pieces):
        times.append(time.perf_counter())
        print(printable(piece), end="", flush=True)
    print()
    if not times:
        print(
            f"\n{shown(llama.name)} ends the text here. To ask an Instruct "
            "model, use `python -m llamalib chat`"
        )
    if len(times) > 1:  # the first one reads the prompt
        mean = (times[-1] - times[0]) / (len(times) - 1)
        print(f"\n{1000 * mean:.1f} ms per token")


def one_sentence(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a text up to the end of its sentence or line."""
    said = ""
    for piece in pieces:
        if piece[:1].isspace() and said.rstrip("\"')*_").endswith(ENDS):
            return
        line, newline, _ = piece.partition("\n")
        if newline and (said + line).strip():
            yield line
            return
        yield piece
        said += piece


def fetch_model(model: str | None) -> None:
    """Download a model's files and print the folder."""
    if model is None:
        sys.exit(
            f"name a model: `python -m llamalib fetch {REAL}` needs an "
            "account that accepted its licence; `python -m llamalib fetch "
            "SmolLM2-135M-Instruct` needs no account"
        )
    folder = fetch(model)
    print(f"\nready: {folder}")
    if folder != FOUND and model not in PACKED:
        print(f"for the notebooks, set LLAMA_DIR to {folder}")


def convert_folder(source: Path, target: Path) -> None:
    """Write a checkpoint in another format to a new folder.

    This is Meta's, or Hugging Face's for a GGUF file whose tokenizer Meta's
    format cannot hold.
    """
    require_new(target)
    llama, found = load(source, device="cpu"), find_checkpoint(source)
    if found.is_dir() or has_metas_tokenizer(llama):
        save(llama, target)
        form = "Meta's"
    else:
        from .gguf import tokenizer_files

        files = tokenizer_files(found, llama.tokenizer)
        save_hugging_face(llama, target, files)
        form = "Hugging Face's"
    print(f"ready: {target}, in {form} format")
    print(f"to open it, set LLAMA_DIR to {target}")


if __name__ == "__main__":
    sys.exit(main())
