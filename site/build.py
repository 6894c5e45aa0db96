"""Build the site: the notebooks as pages, in build/site, without a network.

python site/build.py [FOLDER]
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from book import check, pages

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent


def build_site(out: Path) -> None:
    """Build the site in the folder `out`, and check every page of it.

    Raises FileExistsError for a folder that holds anything else, and
    RuntimeError if a page is missing, empty or wrong.
    """
    start, out = time.monotonic(), out.resolve()
    if out.exists() and any(out.iterdir()) and not is_site(out):
        raise FileExistsError(
            f"{out} holds something else: name a new folder, as in build.py FOLDER"
        )
    sources, part = (out.with_name(f".{out.name}.{n}") for n in ("src", "new"))
    try:
        for folder in (sources, part):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        pages = make(sources, part)
        shutil.rmtree(out, ignore_errors=True)
        part.rename(out)
    finally:
        for folder in (sources, part):
            shutil.rmtree(folder, ignore_errors=True)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    seconds = time.monotonic() - start
    print(f"{pages} pages, {size / 1e6:.1f} MB, in {seconds:.0f} s: {out}")
    print(f"to read it: python -m http.server -d {out} 8000")
    print("then open http://localhost:8000")


def is_site(folder: Path) -> bool:
    """Return whether the folder is a site that this command built."""
    return (folder / "_static" / "pocket" / "model.safetensors").exists()


def make(sources: Path, out: Path) -> int:
    """Write the sources, run Sphinx, check the pages; return their number."""
    pages.Pages(sources).write()
    words = {
        path.relative_to(sources)
        .with_suffix(".html")
        .as_posix(): check.source_text(path)
        for path in (*sources.rglob("*.md"), *sources.rglob("*.ipynb"))
        if "_extra" not in path.parts
    }
    kept = sources / "_doctrees"
    flags = "-q", "-W", "--keep-going", "-b", "html", "-c", SITE, "-d", kept
    command = [sys.executable, "-m", "sphinx", *flags, sources, out]
    if subprocess.run(command, cwd=ROOT).returncode:
        raise RuntimeError("Sphinx stopped: its reasons are above")
    shutil.rmtree(out / "_sources", ignore_errors=True)
    if found := check.problems(out, words):
        lines = "\n  ".join(found[:20])
        raise RuntimeError(f"{len(found)} problems in the site:\n  {lines}")
    return len(words)


if __name__ == "__main__":
    try:
        build_site(Path(*sys.argv[1:2] or [ROOT / "build" / "site"]))
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))
