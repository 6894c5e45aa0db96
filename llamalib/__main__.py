r"""The project's commands: python -m llamalib run, execute, fetch, convert."""

import argparse
import contextlib
import io
import json
import os
import sys
from pathlib import Path

from .files import ROOT
from .formats.meta import save
from .loading import load

NOTEBOOKS = ROOT / "notebooks"
GENERATE = NOTEBOOKS / "09_generate.ipynb"
WIDGET = "application/vnd.jupyter.widget-view+json"


def main(argv=None) -> int:
    """Parse the command line and run one command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m llamalib")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="run 09_generate and print what it generated"
    )
    run.add_argument(
        "--prompt",
        help="the text to continue; else $LLAMA_PROMPT, else its own",
    )
    execute = commands.add_parser(
        "execute", help="execute notebooks again, in place"
    )
    execute.add_argument("notebooks", nargs="*", type=Path)
    fetch = commands.add_parser(
        "fetch", help="download a model's original files"
    )
    fetch.add_argument("model", nargs="?", default="Llama-3.2-1B")
    convert = commands.add_parser(
        "convert", help="write a checkpoint that opens in Meta's format"
    )
    convert.add_argument("source", type=Path)
    convert.add_argument("target", type=Path)
    args = parser.parse_args(argv)
    try:
        if args.command == "run":
            run_prompt(args.prompt)
        elif args.command == "execute":
            for path in args.notebooks or all_notebooks():
                print(f"executing {path.name}", flush=True)
                execute_in_place(path)
        elif args.command == "convert":
            print(f"ready: {convert_folder(args.source, args.target)}")
        else:
            from .formats.download import fetch as fetch_model

            print(f"\nready: {fetch_model(args.model)}")
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def convert_folder(source: Path, target: Path) -> Path:
    """Write what `source` holds in Meta's format; what is there stays."""
    if target.exists() and any(target.iterdir()):
        raise ValueError(
            f"{target} is not empty, and nothing is written over; name a new "
            "folder"
        )
    save(load(source, device="cpu"), target)
    return target


def all_notebooks() -> list[Path]:
    """The series in order, then the appendix."""
    return sorted(NOTEBOOKS.glob("*.ipynb")) + sorted(
        NOTEBOOKS.glob("appendix/*.ipynb")
    )


def run_prompt(prompt: str | None = None) -> None:
    """Run 09_generate, and let its result cells print.

    In this process, and no further than the last of them: who gives a
    prompt waits neither for a kernel nor for what comes after.
    """
    if prompt is not None:
        os.environ["LLAMA_PROMPT"] = prompt
    os.environ["MPLBACKEND"] = "agg"  # pictures are drawn, and not shown
    cells = json.loads(GENERATE.read_text(encoding="utf-8"))["cells"]
    while "result" not in cells[-1]["metadata"].get("tags", ()):
        cells.pop()
    names = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
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


def executed(path: Path):
    """The notebook after a run in a fresh kernel, in its own folder."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=None,
        record_timing=False,
        coalesce_streams=True,  # one print, one output, however it came
        extra_arguments=["--log-level=ERROR"],  # no word on its sockets
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        return client.execute()
    except CellExecutionError as error:
        count, line = failed(notebook)
        raise RuntimeError(
            f"cell [{count}] of {path.name} failed, which begins {line!r}: "
            f"{error.ename}: {error.evalue}"
        ) from None


def failed(notebook) -> tuple[int, str]:
    """The number of the cell that failed, and its first line."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                return cell.execution_count, cell.source.split("\n")[0]
    return 0, ""


def execute_in_place(path: Path) -> None:
    """Execute and save, with nothing in the file that names this machine."""
    import nbformat

    os.environ.pop("LLAMA_PROMPT", None)
    notebook = executed(path)
    # A widget lives only with its kernel: what is saved is its still picture.
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
    notebook.metadata = {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    sys.exit(main())
