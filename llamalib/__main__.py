r"""The project's commands: python -m llamalib run, test, lab, …

Each target of the Makefile is one of them, so Windows needs no `make`.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from .files import ROOT
from .formats import find
from .formats.download import fetch
from .formats.meta import save
from .loading import load
from .tasks.notebooks import NOTEBOOKS, all_notebooks
from .tasks.project import SCRIPTS

GENERATE = NOTEBOOKS / "09_generate.ipynb"


def main(argv=None) -> int:
    """Run one command and return the exit status."""
    arguments = vars(parser().parse_args(argv))
    command = arguments.pop("command")
    try:
        if sys.stdout is None:
            raise RuntimeError("standard output is closed: open it to read")
        # Windows pipes may have an encoding without the letter of a text
        sys.stdout.reconfigure(errors="replace")
        status = command(**arguments) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, like `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser; each command's arguments are its function's."""
    whole = argparse.ArgumentParser(prog="python -m llamalib")
    whole.set_defaults(command=whole.print_help)
    commands = whole.add_subparsers(metavar="COMMAND")

    def add(name, function, help):
        command = commands.add_parser(name, help=help)
        command.set_defaults(command=function)
        return command.add_argument

    add("help", whole.print_help, "print this list")
    several = "TORCHELASTIC_RUN_ID" in os.environ  # torchrun started us
    function = later("tasks.torchrun.run") if several else run_prompt
    run = add("run", function, "run 09_generate and print its results")
    run("--prompt", help="text to continue (default: $LLAMA_PROMPT)")
    lab = add("lab", later("tasks.lab.open_lab"), "open the notebooks")
    lab("--work", type=Path, default=ROOT / "work", help="your copy")
    lab("--copy", action="store_true", help="only bring the copy up to date")
    lab("flags", nargs="*", help="for JupyterLab, after --")
    for name in ("weights", "fetch"):
        model = add(name, fetch_model, "download a model's original files")
        model("model", nargs="?", default="Llama-3.2-1B")
    convert = add("convert", convert_folder, "write Meta's format")
    convert("source", type=Path)
    convert("target", type=Path)
    report = later("verify.report.print_report")
    verify = add("verify", report, "compare with published facts")
    verify("folder", nargs="?", type=Path, help="(default: as for `run`)")
    verify("--dtype", default="float32", help="float32, or 16 bits")
    verify("--wikitext", type=Path, metavar="FILE", help="for perplexity")
    add_chat_and_course(add)
    add_project(add)
    return whole


def add_chat_and_course(add) -> None:
    """Add the commands that talk to a model and write a course."""
    chat = add("chat", later("tasks.chat.talk"), "talk to an Instruct model")
    chat("folder", nargs="?", help="(default: $LLAMA_DIR, the 1B, the pocket)")
    chat("--system", default="", help="what the model is told before you ask")
    chat("--date", help="for Meta's template (default: today; '': no dates)")
    chat("--temperature", type=float, default=0.6, help="0: greedy")
    chat("--seed", type=int, help="gives the same answers again")
    chat("--max-new-tokens", type=int, default=512, help="per answer")
    chat("--context", type=int, help="tokens it remembers (default: 4096)")
    course = later("grading.assignments.write_course")
    course = add("course", course, "write a course's assignments")
    course("notebooks", nargs="*", help="like 03_rmsnorm (default: all)")
    course("--out", type=Path, default=ROOT / "build" / "course")


def add_project(add) -> None:
    """Add the commands that test, measure and write the project itself."""
    test = add("test", later("tasks.project.run_tests"), "run the tests")
    test("paths", nargs="*", type=Path, help="only these (default: all)")
    slow = later("tasks.project.run_slow_tests")
    add("test-slow", slow, "test what needs gigabytes or minutes")
    browser = later("tasks.project.run_browser_tests")
    add("test-browser", browser, "test widgets and site in Chromium")
    for name in ("notebooks", "execute"):
        execute = later("tasks.notebooks.execute_all")
        execute = add(name, execute, "execute notebooks in place")
        execute("notebooks", nargs="*", type=Path, help="(default: all)")
    for name, (_, help) in SCRIPTS.items():
        add(name, later("tasks.project.run_scripts", name=name), help)
    add("lines", print_lines, "count llamalib's lines by room")
    add("words", print_words, "count words and minutes by notebook")
    gpu = later("tasks.gpu.run_gpu")
    gpu = add("gpu", gpu, "test and measure on a CUDA GPU, in minutes")
    gpu("--minutes", type=float, default=9, help="the most to take")
    gpu("--parts", nargs="*", choices="tests checkpoint cells bench".split())
    gpu("--rehearse", type=Path, help=argparse.SUPPRESS)
    frames = later("tasks.notebooks.write_frames")
    add("frame", frames, "write every notebook's header and footer")
    address = later("tasks.rooms.write_address")
    add("address", address, "write the address where it is shown")
    site = add("site", later("tasks.site.build_site"), "build the site")
    site("--out", type=Path, default=ROOT / "build" / "site")
    clean = later("tasks.project.clean")
    add("clean", clean, "remove .venv and what was built")


def later(where: str, **given):
    """Return a function of a room, imported when it is called."""
    module, _, function = where.rpartition(".")

    def call(**arguments):
        found = import_module(f"{__package__}.{module}")
        return getattr(found, function)(**given, **arguments)

    return call


def run_prompt(prompt: str | None = None) -> None:
    """Run 09_generate up to its last result cell, and print those cells."""
    if prompt is not None:
        os.environ["LLAMA_PROMPT"] = prompt
    os.environ["MPLBACKEND"] = "agg"  # draw pictures without showing them
    cells = json.loads(GENERATE.read_text(encoding="utf-8"))["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    while "result" not in cells[-1]["metadata"].get("tags", ()):
        cells.pop()
    names = {"__name__": "__main__"}
    for cell in cells:
        shown = "result" in cell["metadata"].get("tags", ())
        where = sys.stdout if shown else io.StringIO()
        try:
            with contextlib.redirect_stdout(where):
                exec("".join(cell["source"]), names)
        except BrokenPipeError:
            raise
        except Exception as error:
            raise RuntimeError(
                f"a cell of {GENERATE.name} failed: "
                f"{type(error).__name__}: {error}"
            ) from None
        where.flush()


def fetch_model(model: str) -> None:
    """Download a model's files and print the folder."""
    folder = fetch(model)
    print(f"\nready: {folder}")
    if folder != ROOT / find.REAL:  # which is found by itself
        print(f"for the notebooks, set LLAMA_DIR to {folder}")


def convert_folder(source: Path, target: Path) -> None:
    """Write the checkpoint `source` in Meta's format to a new folder."""
    if target.exists() and any(target.iterdir()):
        raise ValueError(
            f"{target} is not empty: name a new folder, nothing is overwritten"
        )
    save(load(source, device="cpu"), target)
    print(f"ready: {target}")


def print_lines() -> None:
    """Print a table of lines by room."""
    from .course import counts

    print(counts.lines_table())


def print_words() -> None:
    """Print words, cells and minutes by notebook."""
    from .course import counts

    print(counts.words_table(all_notebooks()))


if __name__ == "__main__":
    sys.exit(main())
