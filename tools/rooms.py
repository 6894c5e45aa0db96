"""The project's public address, and the pages of others that open it.

It is pyproject.toml's Repository, or else that of git's remote `origin`, if
that is on GitHub. `python -m tools frame` writes it where it is shown.
"""

import json
import re
import subprocess
import tomllib
from pathlib import Path

from .notebooks import ROOT

SETUP = "notebooks/setup_colab.ipynb"
# The published site, and pages that open the project on machines of others
ROOMS = {
    "the site": "https://{4}.github.io/{5}/",
    "Codespaces": "https://codespaces.new/{0}",
    "Binder": "https://mybinder.org/v2/gh/{0}/HEAD?urlpath=lab/tree/{1}",
    "Colab": "https://colab.research.google.com/github/{0}/{2}",
    "Kaggle": "https://kaggle.com/kernels/welcome?src={3}/{2}",
}
BEGIN, END = (f"<!-- rooms: {word} -->" for word in ("begin", "end"))


GITHUB = "https://github.com/"
# As git writes it; a user and a password before the @ are left out.
REMOTE = re.compile(
    r"(?:https://(?:[^/]*@)?github\.com/|(?:ssh://)?git@github\.com[:/])"
    r"([A-Za-z0-9-]+)/([A-Za-z0-9._-]+?)(?:\.git)?/?"
)


def address() -> str:
    """Return the address, or "" while there is none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["project"].get("urls", {}).get("Repository")
    ok = re.fullmatch(rf"{re.escape(GITHUB)}[^/@]+/[^/@]+", found or "")
    if found and not ok:
        raise ValueError(
            "pyproject.toml: Repository must be an address like "
            f"'{GITHUB}OWNER/NAME', got {found!r:.80}"
        )
    return found or on_github(remote())


def remote() -> str:
    """Return the address of git's remote `origin`, or ""."""
    if not (ROOT / ".git").exists():  # git would ask the folders above
        return ""
    command = ["git", "remote", "get-url", "origin"]
    try:
        return subprocess.check_output(
            command, cwd=ROOT, stderr=subprocess.DEVNULL, text=True
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def on_github(remote: str) -> str:
    """Return a remote's page on GitHub, or "" for any other remote."""
    found = REMOTE.fullmatch(remote)
    return f"{GITHUB}{found[1]}/{found[2]}" if found else ""


def colab(address: str, file: str) -> str:
    """Return what opens a file of the project in Colab, or ""."""
    name = name_on_github(address)
    found = ROOMS["Colab"].format(name, "", f"blob/main/{file}")
    return found if name else ""


def name_on_github(address: str) -> str:
    """Return OWNER/NAME, or "" for an address that is not on GitHub."""
    return on_github(address).removeprefix(GITHUB)


def with_links(readme: str, address: str) -> str:
    """Return the README with the address, and with links between its marks."""
    text, name = "", address.removeprefix(GITHUB)
    if address:
        found = name, "notebooks/index.ipynb", f"blob/main/{SETUP}", address
        found += tuple(name.split("/"))
        pages = (f"[{r}]({url.format(*found)})" for r, url in ROOMS.items())
        text = f"**In a browser**, nothing to install: {' · '.join(pages)}."
    block = "\n\n".join(filter(None, [BEGIN, text, END]))
    clone = f"git clone {address or 'ADDRESS'} "
    readme = re.sub(r"git clone \S+ ", clone, readme)
    return re.sub(f"{BEGIN}.*?{END}", lambda _: block, readme, flags=re.S)


def with_address(notebook: str, address: str) -> str:
    """Return the setup notebook, as text, with the address in its cell."""
    line = json.dumps(f"ADDRESS = {json.dumps(address)}")[:-1]
    return re.sub(r'"ADDRESS = \\".*?\\"', lambda _: line, notebook)


def addressed() -> dict[Path, str]:
    """Return the README and the setup notebook with today's address."""
    found = {}
    for name, change in {"README.md": with_links, SETUP: with_address}.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        found[ROOT / name] = change(text, address())
    return found
