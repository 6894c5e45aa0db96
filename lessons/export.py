"""Write the library's modules from the notebooks' tagged cells.

A cell tagged `llamalib:model` is a part of llamalib/model.py. It begins with
its imports; the exporter collects these at the head of the module, and leaves
the rest of the cell as it is.

This file needs the standard library alone, and imports neither llamalib nor
the rest of lessons: it can repair a module that does not run.
"""

import ast
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TAG = "llamalib:"
WIDTH = 79  # of a line
TITLES = {
    "model": "The whole Llama: its config, its functions, its modules.",
    "generate": "From logits to new ids: sampling, KV cache, generation.",
    "quantize": "Weights rounded to 8 or 4 bits.",
    "probe": "Losses on held-out texts, broken models, recorded activations.",
}
HEAD = '''r"""{title}

Generated from the notebooks' cells by `python -m lessons export`: do not edit
this file, edit the notebook.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""
'''


def main(options) -> int:
    """Write the modules; with --check, only compare them."""
    if set(options) - {"--check"}:
        print("usage: python -m lessons export [--check]")
        return 2
    stale = []
    for file, text in export(ROOT).items():
        same = file.is_file() and file.read_bytes() == text.encode()
        if not same:
            stale.append(file.relative_to(ROOT).as_posix())
            if "--check" not in options:
                file.write_bytes(text.encode())
                print(f"wrote {stale[-1]}")
    if stale and "--check" in options:
        files = ", ".join(stale)
        print(
            f"not as in the notebooks: {files}; run python -m lessons export"
        )
        return 1
    return 0


def export(root: Path) -> dict[Path, str]:
    """Return each module that cells are tagged for, and its text."""
    package, cells = root / "llamalib", {}
    for notebook in notebooks(root):
        for module, source in tagged_cells(notebook):
            cells.setdefault(module, []).append((notebook.name, source))
    if missing := sorted(set(TITLES) - set(cells)):
        raise ValueError(f"no cell is tagged {TAG}{missing[0]}")
    homes = exported_by(package / "__init__.py")
    for module, found in cells.items():
        names = [n for _, source in found for n in defined(source)]
        if several := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"{module}: {several[0]} is defined twice")
        homes.update(dict.fromkeys(names, module))
    return {
        package / f"{module}.py": module_text(module, found, homes)
        for module, found in cells.items()
    }


def notebooks(root: Path) -> list[Path]:
    """Return the notebooks in the order of the series."""
    main_road = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    return main_road + sorted((root / "notebooks/appendix").glob("*.ipynb"))


def tagged_cells(notebook: Path):
    """Yield (module, source) of each cell with a tag such as llamalib:model.

    Raises ValueError if a tag names no module that the exporter knows.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        for tag in cell["metadata"].get("tags", ()):
            if tag.startswith(TAG):
                module = tag.removeprefix(TAG)
                if module not in TITLES:
                    known = ", ".join(TAG + name for name in TITLES)
                    raise ValueError(
                        f"{notebook.name}: unknown tag {tag}, not in {known}"
                    )
                yield module, "".join(cell["source"])


def exported_by(init: Path) -> dict[str, str]:
    """Return the module that llamalib imports each public name from."""
    tree = ast.parse(init.read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }


def module_text(module: str, cells: list, homes: dict[str, str]) -> str:
    """Return a module: docstring, imports, __all__, then the cells."""
    found, names, bodies = {}, [], []
    for notebook, source in cells:
        try:
            imports, body = divided(source)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{notebook}, a cell for {module}: {error}")
        for node in imports:
            for where, name in resolved(node, module, homes):
                found.setdefault(where, set()).add(name)
        names += defined(source)
        bodies.append(body)
    listed = "".join(f'    "{name}",\n' for name in names)
    head = HEAD.format(title=TITLES[module]) + "\n" + import_lines(found)
    return "\n\n\n".join([f"{head}\n__all__ = [\n{listed}]", *bodies]) + "\n"


def divided(source: str) -> tuple[list, str]:
    """Return a cell's imports, as syntax trees, and what follows them.

    Raises ValueError for a comment or a statement among the imports, which
    would be lost.
    """
    lines = source.split("\n")
    imports, others = [], False
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            others = True
        elif others:
            raise ValueError(f"line {node.lineno}: imports come first")
        else:
            imports.append(node)
    start = imports[-1].end_lineno if imports else 0
    head = "\n".join(lines[:start])
    alone = "#" not in head and ";" not in head
    if not alone or len(ast.parse(head).body) != len(imports):
        raise ValueError(f"only imports may stand in {head!r:.80}")
    return imports, "\n".join(lines[start:]).strip("\n")


def resolved(node, module: str, homes: dict[str, str]):
    """Yield (module, name) of each name of an import, as llamalib has it.

    The name of `import x as y` is ("x", "y"). A name of the module itself is
    left out.
    """
    if getattr(node, "level", 0):
        raise ValueError("write from llamalib import …, not from . import …")
    for alias in node.names:
        name = alias.name, alias.asname or ""
        if isinstance(node, ast.Import):
            yield "", name
            continue
        package, _, home = node.module.partition(".")
        if package != "llamalib":
            yield node.module, name
            continue
        home = home or homes.get(alias.name, "")
        if home == module and alias.asname:
            raise ValueError(f"{alias.name} is of this module: no other name")
        if home != module:
            yield f".{home}", name


def import_lines(found: dict[str, set]) -> str:
    """Return sorted imports: standard library, other packages, llamalib."""
    sections = [[], [], []]
    for name, alias in sorted(found.get("", ())):
        line = f"import {name} as {alias}" if alias else f"import {name}"
        sections[section(name)].append(line)
    for where in sorted(found, key=lambda where: where.replace(".", "")):
        if where:
            pairs = sorted(found[where], key=lambda pair: by_kind(pair[0]))
            names = [f"{n} as {a}" if a else n for n, a in pairs]
            sections[section(where)].append(from_line(where, names))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def section(module: str) -> int:
    """Return 0 for the standard library, 1 for packages, 2 for llamalib."""
    if module.startswith("."):
        return 2
    return int(module.split(".")[0] not in sys.stdlib_module_names)


def by_kind(name: str) -> tuple:
    """Return the order of imported names: CONSTANTS, Classes, functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 2 - name[0].isupper()
    return kind, name


def from_line(module: str, names: list[str]) -> str:
    """Return an import of names, broken where it is too wide."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    listed = "".join(f"    {name},\n" for name in names)
    return f"from {module} import (\n{listed})"


def defined(source: str) -> list[str]:
    """Return the names that a cell defines at the top level."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [t.id for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.AnnAssign):
            names.append(node.target.id)
    return names
