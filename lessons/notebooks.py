"""Execute notebooks and save them without any trace of this machine."""

import os
from pathlib import Path

from llamalib.load import ROOT, read_start

NOTEBOOKS = ROOT / "notebooks"
APPENDIX = NOTEBOOKS / "appendix"
KERNEL = dict(display_name="Python 3", language="python", name="python3")


def all_notebooks() -> list[Path]:
    """Return the series in order, then the appendix; without the index."""
    main = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    return main + sorted(APPENDIX.glob("*.ipynb"))


def execute_all(notebooks: list[Path]) -> None:
    """Execute the given notebooks in place, or all, with the pocket Llama."""
    if not notebooks:
        os.environ["LLAMA_DIR"] = str(ROOT / "data" / "pocket-llama")
    every = [NOTEBOOKS / "index.ipynb", *all_notebooks()]
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
    language = {"name": "python"}
    notebook.metadata = {"kernelspec": KERNEL, "language_info": language}
    write(path, (nbformat.writes(notebook) + "\n").encode())


def write(file: Path, content: bytes) -> None:
    """Write a file at once: a run that is killed leaves no half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(file)


def write_frames() -> None:
    """Write the header and footer of every notebook of the series."""
    from . import frame as series

    for path in all_notebooks():
        series.write_frame(path)
    series.write_index()


def read_notebook(path: Path):
    """Return a notebook, or raise ValueError for a file that is none."""
    import nbformat

    read_start(path)  # which names what may not be read
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except OSError:
        raise
    except Exception as error:  # its type depends on what is wrong
        reason = str(error).strip().split("\n")[0][:160]
        raise ValueError(
            f"{path} is no notebook ({type(error).__name__}: {reason}): name "
            "an .ipynb file that JupyterLab can open"
        ) from None


def executed(path: Path):
    """Return the notebook after a run in a fresh kernel, in its folder."""
    from nbclient import execute
    from nbclient.exceptions import CellExecutionError

    notebook = read_notebook(path)
    try:
        return execute(
            notebook,
            cwd=str(path.parent),
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,  # one print gives one output
            extra_arguments=["--log-level=ERROR"],  # no warnings about sockets
        )
    except CellExecutionError as error:
        pairs = ((c, o) for c in notebook.cells for o in c.get("outputs", ()))
        cell = next(c for c, o in pairs if o.output_type == "error")
        raise RuntimeError(
            f"cell [{cell.execution_count}] of {path.name} failed, which "
            f"begins {cell.source.splitlines()[0]!r}: "
            f"{error.ename}: {error.evalue}"
        ) from None
