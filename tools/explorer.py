"""The explorer: one prompt through the whole Llama, in a page.

The modules in site/explorer/ compute and show it. This module writes what
they read: the stations' texts, the models, and runs that are drawn before a
model is there.
"""

import ast
import base64
import hashlib
import json
import re
import tempfile
import textwrap
import tomllib
from functools import cache
from pathlib import Path

import torch
from matplotlib.colors import to_rgb
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from lessons.theme import COLOURS, SCALES, image_tag
from llamalib.load import load
from llamalib.model import LLAMA_1B

from . import page_models
from .frame import SERIES
from .notebooks import ROOT

SITE = ROOT / "site"
TEXTS = tomllib.loads(
    Path(__file__).with_name("stations.toml").read_text(encoding="utf-8")
)


def code_lines(file: str, name: str, first: str, last: str) -> str:
    """Return lines of a function of llamalib, without their indentation.

    name: as in "Attention.forward".  first, last: how the lines begin.
    Raises ValueError if the function has no such line.
    """
    source = (ROOT / "llamalib" / file).read_text(encoding="utf-8")
    node = ast.parse(source)
    for part in name.split("."):
        node = next(n for n in node.body if getattr(n, "name", "") == part)
    lines = source.splitlines()[node.lineno : node.end_lineno]
    stripped = [line.strip() for line in lines]

    def find(start, after=0):
        for i in range(after, len(lines)):
            if stripped[i].startswith(start):
                return i
        raise ValueError(f"{file}, {name}: no line begins with {start!r}")

    begin = find(first)
    end = find(last, begin)
    while not complete(lines[begin : end + 1]):
        end += 1
    return textwrap.dedent("\n".join(lines[begin : end + 1]))


def complete(lines: list[str]) -> bool:
    """Return whether the last statement of some lines is whole."""
    text = textwrap.dedent("\n".join(lines))
    try:
        ast.parse(f"def f():\n{textwrap.indent(text, ' ')}")
    except SyntaxError:
        return False
    return True


def stations() -> list[dict]:
    """Return each station's texts, with its code as markup."""
    pages = {n.file[:2]: n for n in SERIES if n.step}
    found = []
    for each in TEXTS["station"]:
        file, name, *ends = each["code"]
        code = code_lines(file, name, *ends)
        html = highlight(code, PythonLexer(), HtmlFormatter(nowrap=True))
        notebook = pages[each["notebook"]]
        more = dict(code=html.rstrip(), source=f"{file}, {name}")
        more |= dict(file=notebook.file, notebook=notebook.label)
        found.append(each | more)
    return found


@cache
def nearest_at_random(V: int, D: int, n=6, times=20) -> list[float]:
    """Return the n largest cosines of a random vector with V others.

    D: their dim. The mean of several draws. A cosine is z / √(z² + r²), with
    a normal number z and the squared length r² of D - 1 others.
    """
    generator, found = torch.Generator().manual_seed(0), 0
    rest = torch.full((V,), (D - 1) / 2)
    for _ in range(times):
        z = torch.randn(V, generator=generator)
        squares = 2 * torch._standard_gamma(rest, generator)
        cosines = z / (z.square() + squares).sqrt()
        found = found + cosines.topk(n).values / times
    return [round(x, 3) for x in found.tolist()]


def letters() -> dict[str, int]:
    """Return the sizes of Llama 3.2-1B by the letters of shapes."""
    c = LLAMA_1B
    found = dict(D=c.dim, L=c.n_layers, H=c.n_heads, KV=c.n_kv_heads)
    return found | dict(hd=c.head_dim, F=c.hidden_dim, V=c.vocab_size)


PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The explorer: one prompt through a Llama</title>
<meta name="description" content="{about}">
<meta property="og:title" content="One prompt through a whole Llama">
<meta property="og:description" content="{about}">
{head}
</head>
<body class="llama-alone" data-theme="auto">
<header>{header}</header>
<main>
<section class="llama"><p>{needs}</p></section>
</main>
</body>
</html>
"""
ABOUT = (
    "Type a prompt and see every step of a Llama with its numbers: tokens, "
    "RMSNorm, RoPE, attention, SwiGLU, the next token."
)
NEEDS = (
    "This needs JavaScript, a browser of 2023 or later, and a server: in the "
    "folder of a page that was opened as a file, run <code>python -m "
    "http.server --bind 127.0.0.1</code>, then open "
    "<code>http://localhost:8000</code>."
)


def modules() -> dict[str, str]:
    """Return the page's modules by name, without made.js."""
    files = sorted((SITE / "explorer").glob("*.js"))
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def write_models(folder: Path, whole: bool = True) -> tuple[list, list]:
    """Write models and recorded runs; return what made.js says of them.

    whole: with SmolLM2's weights, if it was fetched; its runs come anyway.
    """
    models, runs, source = [], [], page_models.smollm2_file()
    for about in TEXTS["model"]:
        key, place = about["key"], folder / "models" / about["key"]
        if key == "pocket":
            weights = page_models.POCKET
            parts = page_models.write_pocket(place)
        elif source is None:
            continue
        else:
            weights = source
            parts = page_models.write_smollm2(source, place, whole)
        llama = load(weights, device="cpu", dtype=torch.float32)
        chance = nearest_at_random(llama.config.vocab_size, llama.config.dim)
        if not parts:
            about = about | dict(knows=about["recorded"])
            about |= dict(prompts=about["prompts"][: TEXTS["recorded"]])
        models.append(about | dict(parts=parts, nearest=chance))
        for i, prompt in enumerate(about["prompts"][: TEXTS["recorded"]]):
            file = folder / "runs" / f"{key}-{i}.gz"
            page_models.write_run(llama, prompt, file)
            size = file.stat().st_size
            run = dict(model=key, prompt=prompt, file=file.name, bytes=size)
            runs.append(run)
    return models, runs


def made(models: list, runs: list) -> str:
    """Return made.js: what the modules read that Python knows."""
    scales = {
        name: [[round(255 * x) for x in to_rgb(c)] for c in scale]
        for name, scale in SCALES.items()
    }
    found = dict(
        stations=stations(),
        large=letters(),
        colours=COLOURS,
        scales=scales,
        models=models,
        runs=runs,
    )
    lines = ["/* Written by tools/explorer.py. */"]
    for name, value in found.items():
        text = json.dumps(value, ensure_ascii=False)
        lines.append(f"export const {name} = {text};")
    return "\n".join(lines) + "\n"


def write_files(static: Path) -> str:
    """Write the modules, the models and the runs; return the modules' folder.

    Its name changes with them: a browser that kept some of an older version
    fetches all again.
    """
    models, runs = write_models(static)
    scripts = modules() | {"made.js": made(models, runs)}
    digest = hashlib.sha256("".join(scripts.values()).encode()).hexdigest()
    folder = static / f"explorer-{digest[:8]}"
    folder.mkdir(parents=True)
    for name, text in scripts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder.name


def head(folder: str, root: str = "") -> str:
    """Return what a page's head needs; folder: the modules'."""
    static, names = f"{root}_static", [*modules(), "made.js"]
    lines = [f'<link rel="stylesheet" href="{static}/explorer.css">']
    lines += [
        f'<link rel="modulepreload" href="{static}/{folder}/{name}">'
        for name in names
    ]
    source = f"{static}/{folder}/explorer.js"
    return "\n".join(
        [*lines, f'<script type="module" src="{source}"></script>']
    )


def page(folder: str) -> str:
    """Return the page of the site that has the explorer alone."""
    icon = '<link rel="icon" href="_static/favicon.svg">'
    link = '<a href="index.html">Llama, notebook by notebook</a>'
    words = f"<h1>The explorer</h1><p>{link}: a series that explains it.</p>"
    return PAGE.format(
        about=ABOUT, head=f"{icon}\n{head(folder)}", header=words, needs=NEEDS
    )


def whole_page() -> str:
    """Return a page that holds everything: it needs no server.

    Its models are the pocket and, if SmolLM2 was fetched, that one's runs.
    """
    style = (SITE / "explorer.css").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scripts = modules() | {"made.js": made(*write_models(folder, False))}
        files = {
            file.relative_to(folder).as_posix(): encoded(file.read_bytes())
            for file in folder.rglob("*")
            if file.is_file()
        }
    places = {}
    for name, text in scripts.items():
        # in a data address, "./" leads nowhere
        text = re.sub(r'from "\./', 'from "llama/', text)
        data = f"data:text/javascript;base64,{encoded(text.encode())}"
        places[f"llama/{name}"] = data
    parts = [
        f"<style>{style}</style>",
        f"<script>window.llama_files = {json.dumps(files)};</script>",
        f'<script type="importmap">{json.dumps({"imports": places})}</script>',
        '<script type="module">import "llama/explorer.js";</script>',
    ]
    page = PAGE.format(about=ABOUT, head="", header="", needs=NEEDS)
    return page.replace("</body>", "\n".join(parts) + "\n</body>")


def encoded(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()


class Frame:
    """The explorer in the output of a cell, in a file next to the notebook.

    JupyterLab shows it without a network, and without a kernel too. Where a
    notebook's frames are not shown, a picture stands in its place.
    """

    FILE = "explorer.html"  # git ignores it
    PICTURE = ROOT / ".github" / "explorer-light.png"
    ALT = (
        "The explorer: a prompt, a tile for each step of a Llama in the order "
        "data flows, and below them the numbers of one step."
    )

    def __init__(self):
        Path(self.FILE).write_text(whole_page(), encoding="utf-8")

    def __repr__(self) -> str:
        return "Frame()"

    def _repr_html_(self) -> str:
        title = "The explorer: one prompt through the whole Llama"
        picture = image_tag(self.PICTURE.read_bytes(), self.ALT)
        return (
            f'<div class="llama-still">{picture}</div>'
            f'<iframe class="llama-frame" src="{self.FILE}" title="{title}" '
            f'style="width: 100%; height: 1px; border: 0"></iframe>{GROW}'
        )


# The page says how high it is, once it is there: then the picture goes, and
# the frame has no scroll bar of its own.
GROW = """\
<script>
window.addEventListener("message", ({ data, source }) => {
  for (const frame of document.querySelectorAll("iframe.llama-frame")) {
    if (!data?.llama || frame.contentWindow !== source) continue;
    frame.style.height = `${data.llama}px`;
    frame.previousElementSibling.hidden = true;
  }
});
</script>"""
show = Frame  # the explorer, named as a picture is
