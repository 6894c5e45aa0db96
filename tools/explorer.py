"""The explorer: one prompt through the whole Llama, in a page.

llama.js and explorer.js, in site/, compute and show it. This module writes
what they read: the stations' texts, the pocket's weights, and the numbers of
the examples, which are drawn before the weights arrive.
"""

import ast
import base64
import json
import shutil
import tempfile
import textwrap
import tomllib
from pathlib import Path

import torch
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from safetensors.torch import save_file

from llamalib.load import load
from llamalib.model import LLAMA_1B, Llama

from .frame import SERIES
from .notebooks import ROOT

POCKET = ROOT / "data" / "pocket-llama"
SITE = ROOT / "site"
TEXTS = tomllib.loads(
    Path(__file__).with_name("stations.toml").read_text(encoding="utf-8")
)
EXAMPLES = TEXTS["examples"]


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


def stations() -> dict:
    """Return what explorer.js reads: texts, code, shapes of the 1B."""
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
    made = dict(stations=found, examples=EXAMPLES, large=letters())
    chance = dict(nearest=nearest_at_random(), products=products_at_random())
    return made | {"at_random": chance}


def nearest_at_random(n=6, times=20) -> list[float]:
    """Return the n largest cosines of a random vector with V others.

    V and D are the pocket's. The mean of several draws.
    """
    params = json.loads((POCKET / "params.json").read_text("utf-8"))
    shape = params["vocab_size"], params["dim"]
    generator, found = torch.Generator().manual_seed(0), 0
    for _ in range(times):
        others = torch.randn(shape, generator=generator)
        cosines = torch.cosine_similarity(others[:1], others[1:])
        found = found + cosines.topk(n).values / times
    return [round(x, 3) for x in found.tolist()]


def letters() -> dict[str, int]:
    """Return the sizes of Llama 3.2-1B by the letters of shapes."""
    c = LLAMA_1B
    found = dict(D=c.dim, L=c.n_layers, H=c.n_heads, KV=c.n_kv_heads)
    return found | dict(hd=c.head_dim, F=c.hidden_dim, V=c.vocab_size)


def stations_script() -> str:
    """Return stations.js."""
    text = json.dumps(stations(), ensure_ascii=False)
    return f"window.llama_stations = {text};\n"


def products_at_random(times=20) -> int:
    """Return the percentage of the sum of squares in the top 10 % of products.

    They are SiLU(gate) · up of random normal numbers, F of each.
    """
    F = letters()["F"]
    generator = torch.Generator().manual_seed(0)
    gate, up = torch.randn(2, times, F, generator=generator)
    squares = (torch.nn.functional.silu(gate) * up).square()
    top = squares.topk(F // 10).values
    return round(100 * (top.sum() / squares.sum()).item())


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
<section class="llama"><p>This needs JavaScript and a browser of 2022 or
later.</p></section>
</main>
</body>
</html>
"""
ABOUT = (
    "Type a prompt and see every step of a Llama with its numbers: tokens, "
    "RMSNorm, RoPE, attention, SwiGLU, the next token."
)
SCRIPTS = "llama.js", "stations.js", "explorer.js"


def page() -> str:
    """Return the page of the site that has the explorer alone."""
    head = ['<link rel="icon" href="_static/favicon.svg">']
    head += ['<link rel="stylesheet" href="_static/explorer.css">']
    head += [f'<script defer src="_static/{n}"></script>' for n in SCRIPTS]
    link = '<a href="index.html">Llama, notebook by notebook</a>'
    words = f"<h1>The explorer</h1><p>{link}: a series that explains it.</p>"
    return PAGE.format(about=ABOUT, head="\n".join(head), header=words)


def whole_page() -> str:
    """Return a page that holds everything: it needs no server."""
    style = (SITE / "explorer.css").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        files = {
            file.name: base64.b64encode(file.read_bytes()).decode()
            for file in Path(folder).iterdir()
        }
    scripts = [f"window.llama_files = {json.dumps(files)};"]
    for name in SCRIPTS:
        made = name == "stations.js"
        text = stations_script() if made else (SITE / name).read_text("utf-8")
        scripts.append(text)
    assert not any("</script" in text for text in scripts)
    head = [f"<style>{style}</style>"]
    head += ["<script>" + "</script>\n<script>".join(scripts) + "</script>"]
    return PAGE.format(about=ABOUT, head="", header="").replace(
        "</body>", "\n".join(head) + "\n</body>"
    )


@torch.no_grad()
def activations(llama: Llama, ids: list[int]) -> dict[str, torch.Tensor]:
    """Return every activation of a text that explorer.js records.

    By name and layer, such as "q.0": one row a position, float32. `logits`
    (T, V); `lens.ids` and `lens.probs` (L + 1, T, 3): the most likely next
    tokens if the model stopped before layer 0, 1, …, or after the last.
    """
    found, hooks = {}, []

    def keep(module, name, layer, which):
        def hook(module, args, out):
            found[f"{name}.{layer}"] = (out if which else args[0])[0].float()

        hooks.append(module.register_forward_hook(hook))

    for i, block in enumerate(llama.layers):
        attention, ffn = block.attention, block.feed_forward
        keep(block, "x", i, 0)
        keep(block.attention_norm, "attention_norm", i, 1)
        for name in "qkv":
            keep(getattr(attention, f"w{name}"), name, i, 1)
        keep(block.ffn_norm, "h", i, 0)
        keep(block.ffn_norm, "ffn_norm", i, 1)
        keep(ffn.w1, "gate", i, 1)
        keep(ffn.w3, "up", i, 1)
    keep(llama.norm, "x", len(llama.layers), 0)
    keep(llama.norm, "norm", 0, 1)
    try:
        logits = llama(torch.tensor(ids))
    finally:
        for hook in hooks:
            hook.remove()
    stream = [found[f"x.{i}"] for i in range(len(llama.layers) + 1)]
    probs = llama.output(llama.norm(torch.stack(stream))).softmax(-1)
    best = probs.topk(3)
    lens = {"lens.ids": best.indices.int(), "lens.probs": best.values}
    return found | lens | dict(logits=logits, ids=torch.tensor(ids).int())


def write_files(folder: Path) -> None:
    """Write what llama.js fetches: the model, its tokenizer, the examples.

    The weights are bfloat16 and have Meta's names. `output.weight` is
    absent: it is tied, so llama.js multiplies with the embedding again.
    """
    llama = load(POCKET, device="cpu", dtype=torch.bfloat16)
    assert llama.tied
    tensors = dict(llama.named_parameters())  # a tied one once
    folder.mkdir(parents=True, exist_ok=True)
    about = {"tied": "true"}
    save_file(tensors, folder / "model.safetensors", metadata=about)
    for name in ("params.json", "tokenizer.model"):
        shutil.copy(POCKET / name, folder)
    llama = load(POCKET, device="cpu", dtype=torch.float32)
    for n, text in enumerate(EXAMPLES):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        found = {k: v.contiguous() for k, v in activations(llama, ids).items()}
        save_file(found, folder / f"example-{n}.safetensors")


class Frame:
    """The explorer in the output of a cell, in a file next to the notebook.

    JupyterLab shows it without a network, and without a kernel too. Other
    programs may not show a file in an output.
    """

    FILE = "explorer.html"  # git ignores it

    def __init__(self):
        Path(self.FILE).write_text(whole_page(), encoding="utf-8")

    def __repr__(self) -> str:
        return "Frame()"

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 62rem; border: 0"
        title = "The explorer: one prompt through the whole Llama"
        return (
            f'<iframe src="{self.FILE}" title="{title}" style="{style}">'
            "</iframe><p><em>Nothing above? Run this cell, in JupyterLab."
            "</em></p>"
        )


show = Frame  # the explorer, named as a picture is
