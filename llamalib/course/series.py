r"""The notebooks in order, and the header and footer that join them.

`python -m llamalib frame` writes both into every notebook, in cells tagged
`frame`: links, times, and what a reader can do afterwards.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ..files import ROOT
from .counts import reading, table

NOTEBOOKS = ROOT / "notebooks"
INDEX = "index.ipynb"


@dataclass(frozen=True)
class Notebook:
    """One notebook: its file, its title, what one can do after it.

    Attributes:
        file: its path from `notebooks`.
        aims: completes "After this notebook you can …".
        deeper: files of the appendices that go deeper.
    """

    file: str
    title: str
    aims: str
    deeper: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The number or letter, and the title."""
        return f"{Path(self.file).stem.split('_')[0]} · {self.title}"

    @property
    def solutions(self) -> str:
        """The path of its solutions from `notebooks`."""
        return f"solutions/{Path(self.file).stem}.py"


def appendix(name: str) -> str:
    return f"appendix/{name}.ipynb"


A, B, C, D = map(
    appendix,
    ("A_training", "B_quantization", "C_mixture_of_experts", "D_long_context"),
)
SERIES = (
    Notebook(
        "00_initialization.ipynb",
        "Initialization",
        "name every tensor of a checkpoint with its shape, and count the "
        "1,235,814,400 parameters of Llama 3.2-1B from ten settings.",
        (B,),
    ),
    Notebook(
        "01_tokenize.ipynb",
        "Tokenize",
        "turn a text into token ids and back by byte-level BPE, and say what "
        "each special token is for.",
    ),
    Notebook(
        "02_embed.ipynb",
        "Embed",
        "look up the vector of each token, and say what the model knows and "
        "does not know about a text at this point.",
    ),
    Notebook(
        "03_rmsnorm.ipynb",
        "RMSNorm",
        "compute RMSNorm by hand, and say what ε and γ do and why the norm "
        "runs in float32.",
    ),
    Notebook(
        "04_rope.ipynb",
        "RoPE",
        "rotate a query and a key by their positions, and show that their "
        "score depends only on the distance.",
        (D,),
    ),
    Notebook(
        "05_attention.ipynb",
        "Attention",
        "compute grouped-query attention with a causal mask, and count its "
        "parameters and the bytes of its cache.",
        (D,),
    ),
    Notebook(
        "06_feed_forward.ipynb",
        "Feed-forward network",
        "compute SwiGLU and a whole transformer block, and derive the hidden "
        "size 8,192.",
        (C,),
    ),
    Notebook(
        "07_lm_head.ipynb",
        "LM head",
        "write the whole model in 14 lines, and turn its last vector into "
        "the probabilities of the next token.",
        (A,),
    ),
    Notebook(
        "08_sampling.ipynb",
        "Sampling",
        "choose the next token greedily or by temperature, top-k and top-p.",
    ),
    Notebook(
        "09_generate.ipynb",
        "Generate",
        "generate text with a key-value cache, on a GPU too, and bound the "
        "tokens per second by the memory bandwidth.",
        (A, B),
    ),
    Notebook(
        A,
        "Training",
        "train a small Llama from random weights, and read its loss curve.",
    ),
    Notebook(
        B,
        "Quantization",
        "store weights in 8 or 4 bits, and measure what that costs.",
    ),
    Notebook(
        C,
        "Mixture of experts",
        "replace a feed-forward network by experts and a router.",
    ),
    Notebook(
        D,
        "Long context",
        "scale RoPE's frequencies, and measure how far a model can look back.",
    ),
)


def link(text: str, to: str, start: str) -> str:
    """Return a link from the notebook `start` to a file in `notebooks`."""
    up = "../" * start.count("/")
    to = to.removeprefix("appendix/") if up and "appendix/" in to else up + to
    return f"[{text}]({to})"


def navigation(notebook: Notebook) -> str:
    """Return links to the notebook before, the contents, the one after."""
    at = SERIES.index(notebook)
    parts = []
    if at > 0:
        before = SERIES[at - 1]
        parts.append(link(f"← {before.label}", before.file, notebook.file))
    parts.append(link("Contents", INDEX, notebook.file))
    if at + 1 < len(SERIES):
        after = SERIES[at + 1]
        parts.append(link(f"{after.label} →", after.file, notebook.file))
    return " · ".join(parts)


def header(notebook: Notebook, times) -> str:
    """Return the text above the notebook's title."""
    solutions = link("solutions", notebook.solutions, notebook.file)
    return (
        f"{navigation(notebook)}\n\n"
        f"**Reading:** {times.minutes} minutes · **exercises:** "
        f"{times.practice} minutes ({solutions})\n\n"
        f"**After this notebook you can** {notebook.aims}"
    )


def footer(notebook: Notebook) -> str:
    """Return the text below the notebook's last cell."""
    parts = [navigation(notebook)]
    titles = {each.file: each.label for each in SERIES}
    deeper = [link(titles[f], f, notebook.file) for f in notebook.deeper]
    if deeper:
        parts.append(f"**Deeper:** {', '.join(deeper)}")
    solutions = link(notebook.solutions, notebook.solutions, notebook.file)
    parts.append(f"**Solutions:** {solutions}")
    return "\n\n".join(parts)


def framed(cells: list[dict], notebook: Notebook, times) -> list[dict]:
    """Return a notebook's cells with today's header and footer."""
    inner = [c for c in cells if "frame" not in c["metadata"].get("tags", ())]
    texts = header(notebook, times), footer(notebook)
    first, last = (
        {
            "cell_type": "markdown",
            "id": f"frame-{name}",
            "metadata": {"tags": ["frame"]},
            "source": text.splitlines(keepends=True),
        }
        for name, text in zip(("header", "footer"), texts)
    )
    return [first, *inner, last]


def write_frame(path: Path) -> None:
    """Write the header and the footer into a notebook of the series."""
    name = path.relative_to(NOTEBOOKS).as_posix()
    found = {each.file: each for each in SERIES}
    if name not in found:
        return
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    times = reading(notebook)
    notebook["cells"] = framed(notebook["cells"], found[name], times)
    new = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if new != text:
        path.write_text(new, encoding="utf-8")


# Where each notebook's step is in the model, in the order of the data.
STEPS = (
    ("files", 0),
    ("text → ids", 1),
    ("ids → vectors", 2),
    ("RMSNorm", 3),
    ("RoPE", 4),
    ("attention", 5),
    ("FFN, block × L", 6),
    ("LM head", 7),
    ("next token", 8),
    ("all together", 9),
)
ROUTES = (
    ("An evening", (4, 5, 9), "the two ideas that make a Llama, and the end"),
    ("A weekend", range(10), "the main road, without exercises"),
    ("A term", range(len(SERIES)), "all, with the exercises"),
)


def contents(times: dict[str, tuple[int, int]]) -> str:
    """Return the map, the table of notebooks and the routes, in Markdown.

    times: by file, minutes of reading and of exercises.
    """
    steps = [f"[{name}]({SERIES[i].file})" for name, i in STEPS]
    rows = [
        ("notebook", "afterwards you can", "reading", "exercises"),
        ("---", "---", "---:", "---:"),
    ]
    for each in SERIES:
        name, minutes = f"[{each.label}]({each.file})", times[each.file]
        rows.append((name, each.aims, *(f"{n} min" for n in minutes)))
    lines = table(rows)
    rows = [("route", "notebooks", "time", ""), ("---", "---", "---:", "---")]
    for name, which, words in ROUTES:
        files = [SERIES[i].file for i in which]
        minutes = sum(times[f][0] for f in files)
        if name == "A term":
            minutes += sum(times[f][1] for f in files)
        numbers = [SERIES[i].label.split(" · ")[0] for i in which]
        if len(numbers) > 4:
            numbers = [numbers[0], "…", numbers[-1]]
        hours = f"{minutes / 60:.0f} hours"
        rows.append((name, " ".join(numbers), hours, words))
    parts = "## Contents", " → ".join(steps), lines, "## Routes", table(rows)
    return "\n\n".join(parts)


def write_index() -> None:
    """Write today's contents into the index."""
    path, times = NOTEBOOKS / INDEX, {}
    for each in SERIES:
        text = (NOTEBOOKS / each.file).read_text(encoding="utf-8")
        found = reading(json.loads(text))
        times[each.file] = found.minutes, found.practice
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if "frame" in cell["metadata"].get("tags", ()):
            cell["source"] = contents(times).splitlines(keepends=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
