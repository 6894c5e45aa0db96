"""Find, read and write notebooks."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the project's folder
NOTEBOOKS = ROOT / "notebooks"
APPENDIX = NOTEBOOKS / "appendix"


def all_notebooks() -> list[Path]:
    """Return the series in order, then the appendix; without the index."""
    main = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    return main + sorted(APPENDIX.glob("*.ipynb"))


def llama_of(notebook: Path) -> Path:
    """Return the folder of the model whose outputs a notebook holds."""
    lesson = ROOT / "lessons" / f"n{notebook.stem}.py"
    text = lesson.read_text("utf-8") if lesson.is_file() else ""
    if "from .map import strip" in text or notebook.stem == "index":
        return ROOT / "data" / "SmolLM2-135M-Instruct"
    return ROOT / "data" / "pocket-llama"


def models_of(notebook: Path) -> list[Path]:
    """Return the folders of all models whose files a notebook opens."""
    lesson, found = ROOT / "lessons" / f"n{notebook.stem}.py", []
    if lesson.is_file() and "smollm2_file" in lesson.read_text("utf-8"):
        found.append(ROOT / "data" / "SmolLM2-135M-Instruct")
    return [llama_of(notebook), *found]


def write(file: Path, content: bytes) -> None:
    """Write a file at once: a run that is killed leaves no half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)  # of a disk that is full


def read_notebook(path: Path):
    """Return a notebook, or raise ValueError for a file that is none."""
    import nbformat

    from llamalib.checks import read_start

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
