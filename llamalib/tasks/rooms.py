"""The project's public address, written wherever a reader needs it.

It is `Repository` in pyproject.toml; `python -m llamalib address` writes it.
"""

import json
import re
import tomllib

from ..files import ROOT

SETUP = "notebooks/setup_colab.ipynb"
# Machines that others lend, each with the page that opens the project there.
ROOMS = {
    "Codespaces": "https://codespaces.new/{name}",
    "Binder": "https://mybinder.org/v2/gh/{name}/HEAD"
    "?urlpath=lab/tree/notebooks/index.ipynb",
    "Colab": "https://colab.research.google.com/github/{name}/blob/main/"
    + SETUP,
    "Kaggle": "https://kaggle.com/kernels/welcome"
    f"?src=https://github.com/{{name}}/blob/main/{SETUP}",
}
BEGIN, END = (f"<!-- rooms: {word} -->" for word in ("begin", "end"))
NONE = (
    "This project has no public address yet: set `Repository` in "
    "`pyproject.toml` and run `python -m llamalib address`."
)


def address() -> str:
    """Return the address, or "" while there is none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["project"].get("urls", {})
    found = found.get("Repository", "").removesuffix("/")
    if found and not re.fullmatch(r"https://github\.com/[^/]+/[^/]+", found):
        raise ValueError(
            f"Repository in pyproject.toml is {found!r}; expected an address "
            "like 'https://github.com/OWNER/NAME'"
        )
    return found


def links(address: str) -> str:
    """Return how to get the project, in Markdown."""
    name = "/".join(address.split("/")[-2:])
    pages = (f"[{room}]({ROOMS[room].format(name=name)})" for room in ROOMS)
    rooms = f"Or in a browser: {' · '.join(pages)}."
    return f"`git clone {address}`\n\n{rooms}" if address else NONE


def with_links(readme: str, address: str) -> str:
    """Return the README with the links between its two marks."""
    block = f"{BEGIN}\n\n{links(address)}\n\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: block, readme, flags=re.S)


def with_address(notebook: str, address: str) -> str:
    """Return the setup notebook, as text, with the address in its cell."""
    line = json.dumps(f"ADDRESS = {json.dumps(address)}")[:-1]
    return re.sub(r'"ADDRESS = \\".*?\\"', lambda _: line, notebook)


def write_address() -> None:
    """Write today's address into the README and the setup notebook."""
    for name, write in {"README.md": with_links, SETUP: with_address}.items():
        file = ROOT / name
        text = write(file.read_text(encoding="utf-8"), address())
        file.write_text(text, encoding="utf-8")
    print(address() or NONE)
