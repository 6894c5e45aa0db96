"""Write the library's definitions into the cells that name them.

A cell tagged `llamalib:model.rms_norm` shows `rms_norm` of llamalib/model.py,
byte for byte, below the imports that it needs. Several tags show several
definitions. The module is the source: a change in such a cell is not kept.

This file needs the standard library alone.
"""

import ast
import re
import sys
from pathlib import Path

from .notebooks import ROOT

TAG = re.compile(r"llamalib:(?P<module>\w+)\.(?P<name>\w+)")
WIDTH = 79  # of a line
LIBRARY = "llamalib"


class Module:
    """A module of the library: its definitions, and what it imports.

    Attributes:
        lines: by name, the first line of a definition and the one after it;
            comments above it and decorators belong to it.
        origins: by name, where it is from: (module, name), as in
            ("torch", "Tensor"), or ("math", "") for `import math`.
    """

    def __init__(self, name: str, root: Path = ROOT):
        self.name, self.file = name, root / LIBRARY / f"{name}.py"
        if not self.file.is_file():
            raise ValueError(f"{self.file} is missing, but a tag names it")
        text = self.file.read_text(encoding="utf-8")
        self.text, self.lines, self.origins = text.split("\n"), {}, {}
        end = 0
        for node in ast.parse(text).body:
            first = min(
                each.lineno
                for each in (node, *getattr(node, "decorator_list", ()))
            )
            start = first - 1
            while start > end and self.text[start - 1].startswith("#"):
                start -= 1
            end = node.end_lineno
            for defined in definitions(node):
                self.lines[defined] = start, end
                self.origins[defined] = f"{LIBRARY}.{name}", defined
            self.origins |= imported(node)

    def source(self, name: str) -> str:
        """Return the text of a definition; ValueError if there is none."""
        if name not in self.lines:
            raise ValueError(f"{self.file.name} defines no {name}")
        start, end = self.lines[name]
        return "\n".join(self.text[start:end])


def definitions(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [each.id for each in targets if isinstance(each, ast.Name)]


def defined(source: str) -> set[str]:
    """Return the names that a cell defines at its top level."""
    return {n for node in ast.parse(source).body for n in definitions(node)}


def imported(node: ast.stmt) -> dict[str, tuple[str, str]]:
    """Return the origins of the names that a statement imports."""
    if isinstance(node, ast.Import):
        return {a.asname or a.name: (a.name, "") for a in node.names}
    if not isinstance(node, ast.ImportFrom):
        return {}
    package = node.module or ""
    if node.level:
        package = f"{LIBRARY}.{package}".rstrip(".")
    return {a.asname or a.name: (package, a.name) for a in node.names}


def used(source: str) -> set[str]:
    """Return the names that some code reads."""
    names = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Load)}


def cell_source(shown: list[tuple[Module, str]], known: dict, public: dict):
    r"""Return the text of a cell that shows definitions of the library.

    shown: pairs of a module and a name in it.
    known: the origins of the names that the library's earlier cells of this
    notebook define or import; the names of this cell are added.
    public: the origins of the names that `llamalib` itself offers.
    """
    needed: dict[str, tuple[str, str]] = {}
    for module, name in shown:
        names = used(module.source(name)) & {*module.origins}
        needed |= {n: module.origins[n] for n in names}
    for module, name in shown:  # defined here, not imported
        known[name] = module.origins[name]
    missing = {n: o for n, o in needed.items() if known.get(n) != o}
    known |= missing
    files = dict.fromkeys(f"{LIBRARY}/{m.name}.py" for m, _ in shown)
    head = [f"# in {', '.join(files)}", import_lines(missing, public)]
    body = body_of(shown)
    gap = "\n\n\n" if body.startswith(("def ", "class ", "@")) else "\n\n"
    return "\n".join(filter(None, head)) + gap + body


def body_of(shown: list[tuple[Module, str]]) -> str:
    """Return the definitions, those that are neighbours as in the module."""
    body, (before, last) = "", (None, 0)
    for module, name in shown:
        start, end = module.lines[name]
        between = ["", ""]
        if module is before and not "".join(module.text[last:start]):
            between = module.text[last:start]
        body += "\n".join(["", *between, ""]) if before else ""
        body += module.source(name)
        before, last = module, end
    return body


def import_lines(names: dict[str, tuple[str, str]], public: dict) -> str:
    """Return sorted imports: standard library, packages, llamalib.

    A name that `llamalib` offers is imported from there.
    """
    lines: list[list[str]] = [[], [], []]
    found: dict[str, list[str]] = {}
    for name, (module, original) in names.items():
        if not original:
            line = f"import {module}"
            line += f" as {name}" if name != module else ""
            lines[section(module)].append(line)
            continue
        where = LIBRARY if public.get(name) == (module, original) else module
        alias = f" as {name}" if name != original else ""
        found.setdefault(where, []).append(original + alias)
    for each in lines:
        each.sort()
    for module in sorted(found):
        names_ = sorted(found[module], key=by_kind)
        lines[section(module)].append(from_line(module, names_))
    return "\n\n".join("\n".join(each) for each in lines if each)


def section(module: str) -> int:
    """Return 0 for the standard library, 1 for packages, 2 for llamalib."""
    package = module.split(".")[0]
    if package == LIBRARY:
        return 2
    return int(package not in sys.stdlib_module_names)


def by_kind(name: str) -> tuple[int, str]:
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


def shown_by(cell: dict) -> list[tuple[str, str]]:
    """Return the (module, name) pairs of a cell's tags.

    Raises ValueError for a tag that begins with `llamalib:` and names none.
    """
    found = []
    for tag in cell["metadata"].get("tags", ()):
        if tag.startswith(f"{LIBRARY}:"):
            match = TAG.fullmatch(tag)
            if not match:
                raise ValueError(
                    f"the tag {tag} names no definition; expected one like "
                    "llamalib:model.rms_norm"
                )
            found.append((match["module"], match["name"]))
    return found


def public_names(root: Path = ROOT) -> dict[str, tuple[str, str]]:
    """Return the origins of the names that `llamalib` itself offers."""
    text = (root / LIBRARY / "__init__.py").read_text(encoding="utf-8")
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(text).body:
        found |= imported(node)
    return found


def quote(notebook: dict, root: Path = ROOT) -> list[str]:
    """Write the library's cells of a notebook; return which changed.

    Returns the names of each cell that differed from its module.
    """
    modules: dict[str, Module] = {}
    known: dict[str, tuple[str, str]] = {}
    public, changed = public_names(root), []
    for cell in notebook["cells"]:
        shown = shown_by(cell)
        for name, _ in shown:
            modules.setdefault(name, Module(name, root))
        if shown:
            pairs = [(modules[module], name) for module, name in shown]
            text = cell_source(pairs, known, public)
            if text != "".join(cell["source"]):
                cell["source"] = text.splitlines(keepends=True)
                names = (f"{module}.{name}" for module, name in shown)
                changed.append(", ".join(names))
    return changed
