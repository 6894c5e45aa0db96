"""Build the site: the notebooks as pages, in build/site, without a network.

python site/build.py [FOLDER]
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from book import pages

from tools import explorer

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent


def build_site(out: Path) -> int:
    """Build the site in the folder `out`; return the exit status.

    The folder is replaced if the site is complete. Raises FileExistsError for
    a folder that holds anything else.
    """
    mark = out / "_static" / "explorer.css"
    if out.exists() and any(out.iterdir()) and not mark.exists():
        raise FileExistsError(f"{out} holds something else: name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        sources, made = Path(folder, "sources"), Path(folder, "site")
        for name, text in pages.sources().items():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_text(text, encoding="utf-8")
        # a warning, such as of a link that leads nowhere, is an error
        flags = "-q", "-W", "--keep-going", "-b", "html", "-c", SITE
        doctrees = "-d", Path(folder, "doctrees")
        command = [sys.executable, "-m", "sphinx", *flags, *doctrees]
        status = subprocess.run([*command, sources, made], cwd=ROOT).returncode
        if status == 0:
            (modules,) = (made / "_static").glob("explorer-*")
            page = explorer.page(modules.name)
            (made / "explorer.html").write_text(page, encoding="utf-8")
            setup = json.dumps(pages.setup_notebook(), indent=1)
            (made / pages.SETUP).write_text(setup, encoding="utf-8")
            shutil.rmtree(out, ignore_errors=True)
            made.rename(out)
            # without --bind it would serve the whole network
            serve = " -m http.server --bind 127.0.0.1 -d "
            print(f'to read it: "{sys.executable}"{serve}"{out}" 8000')
            print("then open http://localhost:8000")
    return status


if __name__ == "__main__":
    folder = Path(*sys.argv[1:2] or [ROOT / "build" / "site"]).resolve()
    try:
        sys.exit(build_site(folder))
    except OSError as error:
        sys.exit(str(error))
