r"""The project's commands: python -m llamalib run, execute, fetch, …"""

import argparse
import contextlib
import io
import json
import os
import sys
from pathlib import Path

from .files import ROOT
from .formats.download import fetch
from .formats.meta import save
from .loading import load
from .tasks import chat, rooms

NOTEBOOKS = ROOT / "notebooks"
APPENDIX = NOTEBOOKS / "appendix"
WAITING = sorted(APPENDIX.glob("waiting/*.ipynb"))  # not in the series yet
GENERATE = NOTEBOOKS / "09_generate.ipynb"
KERNEL = dict(display_name="Python 3", language="python", name="python3")


def main(argv=None) -> int:
    """Run one command and return the exit status."""
    arguments = vars(parser().parse_args(argv))
    command = arguments.pop("command")
    try:
        command(**arguments)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser; each command's arguments are its function's."""
    whole = argparse.ArgumentParser(prog="python -m llamalib")
    commands = whole.add_subparsers(required=True, metavar="COMMAND")

    def add(name, function, help):
        command = commands.add_parser(name, help=help)
        command.set_defaults(command=function)
        return command.add_argument

    run = add("run", run_prompt, "run 09_generate and print its results")
    run("--prompt", help="text to continue (default: $LLAMA_PROMPT)")
    execute = add("execute", execute_all, "execute notebooks in place")
    execute("notebooks", nargs="*", type=Path, help="(default: all)")
    model = add("fetch", fetch_model, "download a model's original files")
    model("model", nargs="?", default="Llama-3.2-1B")
    convert = add("convert", convert_folder, "write Meta's format")
    convert("source", type=Path)
    convert("target", type=Path)
    lines = add("lines", print_lines, "count llamalib's lines by room")
    lines("revisions", nargs="*", help="commits to compare with")
    words = add("words", print_words, "count words and minutes by notebook")
    words("revisions", nargs="*", help="commits to compare with")
    add("frame", write_frames, "write every notebook's header and footer")
    add("address", rooms.write_address, "write the address where it is shown")
    chat.add_options(add("chat", chat.talk, "talk to an Instruct model"))
    return whole


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
        except Exception as error:
            raise RuntimeError(
                f"a cell of {GENERATE.name} failed: "
                f"{type(error).__name__}: {error}"
            ) from None
        where.flush()


def all_notebooks() -> list[Path]:
    """Return the series in order, then the appendix; without the index."""
    main = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    return main + sorted(APPENDIX.glob("*.ipynb"))


def execute_all(notebooks: list[Path]) -> None:
    """Execute the given notebooks in place, or all of them."""
    every = [NOTEBOOKS / "index.ipynb", *all_notebooks(), *WAITING]
    for path in notebooks or every:
        print(f"executing {path.name}", flush=True)
        execute_in_place(path)


def execute_in_place(path: Path) -> None:
    """Execute a notebook and save it without any trace of this machine."""
    import nbformat

    os.environ.pop("LLAMA_PROMPT", None)
    notebook = executed(path)
    # A saved widget would need its kernel: only its still picture is kept.
    widget = "application/vnd.jupyter.widget-view+json"
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(widget, None)
    notebook.metadata = {
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


def executed(path: Path):
    """Return the notebook after a run in a fresh kernel, in its folder."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=None,
        record_timing=False,
        coalesce_streams=True,  # one print gives one output
        extra_arguments=["--log-level=ERROR"],  # no warnings about sockets
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        return client.execute()
    except CellExecutionError as error:
        failed = [
            f"cell [{cell.execution_count}] of {path.name} failed, which "
            f"begins {cell.source.splitlines()[0]!r}"
            for cell in notebook.cells
            for output in cell.get("outputs", ())
            if output.output_type == "error"
        ]
        reason = f"{error.ename}: {error.evalue}"
        raise RuntimeError(f"{failed[0]}: {reason}") from None


def fetch_model(model: str) -> None:
    """Download a model's files and print the folder."""
    folder = fetch(model)
    print(f"\nready: {folder}")
    if not (folder / "params.json").is_file():
        command = f"python -m llamalib convert {folder} {folder}-original"
        print(f"Notebooks 00 to 02 need Meta's format: {command}")


def convert_folder(source: Path, target: Path) -> None:
    """Write the checkpoint `source` in Meta's format to a new folder."""
    if target.exists() and any(target.iterdir()):
        raise ValueError(
            f"{target} is not empty: name a new folder, nothing is overwritten"
        )
    save(load(source, device="cpu"), target)
    print(f"ready: {target}")


def print_lines(revisions: list[str]) -> None:
    """Print a table of lines by room, in commits and in today's files."""
    from .course import counts

    print(counts.lines_table(revisions))


def print_words(revisions: list[str]) -> None:
    """Print words, cells and minutes by notebook, in commits and today."""
    from .course import counts

    print(counts.words_table(all_notebooks(), revisions))


def write_frames() -> None:
    """Write the header and footer of every notebook of the series."""
    from .course import series

    for path in all_notebooks():
        series.write_frame(path)
    series.write_index()


if __name__ == "__main__":
    sys.exit(main())
