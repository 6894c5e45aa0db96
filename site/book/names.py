"""Which names in a notebook's code are llamalib's, and where each is taught.

Nothing is imported: the package and the notebooks are parsed.
"""

import ast
from collections import ChainMap
from dataclasses import dataclass

from llamalib.files import ROOT

SCOPES = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef
TAKE_NAMES = "break_it", "replaced"  # keywords: llamalib's functions
OUTER = "viz", "course", "tasks", "grading"  # rooms that no cell teaches


@dataclass
class Name:
    """A public name: its module, what it is, and where a reader meets it.

    Attributes:
        cell: (file, id) of the cell that teaches it, or else None.
        first: (file, id) of the first cell that uses it, or None.
    """

    module: str
    name: str
    about: str
    cell: tuple[str, str] | None = None
    first: tuple[str, str] | None = None

    @property
    def anchor(self) -> str:
        """The full name, such as llamalib.rope.apply_rotary_emb."""
        return f"{self.module}.{self.name}"

    @property
    def inner(self) -> bool:
        """Whether it is of the core, or of a room that a reader may call."""
        return (self.module.split(".") + ["core"])[1] not in OUTER

    @property
    def address(self) -> str:
        """Return the page, from the site's root, that says what it is."""
        if self.cell:
            return f"{self.cell[0].removesuffix('.ipynb')}.html#{self.cell[1]}"
        return f"names.html#{self.anchor}"


class Package:
    """The public names of llamalib, by full name and by other names."""

    def __init__(self, root=ROOT):
        self.names, self.aliases = {}, {}
        for file in sorted((root / "llamalib").rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            whole = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if whole else parts)
            text = file.read_text(encoding="utf-8")
            if parts[-1] != "__main__":
                self.read(module, text, ".".join(parts[:-1]))

    def read(self, module: str, text: str, package: str) -> None:
        """Add the public names of a module, and what it imports."""
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    here = f"{module}.{alias.asname or alias.name}"
                    self.aliases[here] = (
                        f"{origin(node, package)}.{alias.name}"
                    )
            for name in defined(node):
                if name == "_ROOMS":
                    rooms = ast.literal_eval(node.value)
                    for each, room in rooms.items():
                        self.aliases[f"{module}.{each}"] = (
                            f"{module}{room}.{each}"
                        )
                elif not name.startswith("_"):
                    found = Name(module, name, about(node, text))
                    self.names[found.anchor] = found

    def exported(self) -> dict[str, Name]:
        """Return what `import llamalib` gives, as {"llamalib.load": …}."""
        found = {a: self.find(a) for a in self.aliases if a.count(".") == 1}
        return {alias: name for alias, name in found.items() if name}

    def find(self, dotted: str) -> Name | None:
        """Return what a dotted name is, if it is a name of llamalib."""
        while dotted in self.aliases:  # an import of an import
            dotted = self.aliases[dotted]
        return self.names.get(dotted)


def origin(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module of `from … import`."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *filter(None, [node.module])])


def defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines: no imports."""
    if isinstance(node, SCOPES):
        return [node.name]
    targets = getattr(node, "targets", [getattr(node, "target", node)])
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return []
    inner = (each for target in targets for each in ast.walk(target))
    return [each.id for each in inner if isinstance(each, ast.Name)]


def about(node: ast.stmt, text: str) -> str:
    """Return one line about a definition: its docstring's, or its comment."""
    if isinstance(node, SCOPES):
        check = f"Check exercise {node.name[-1]}."
        return (ast.get_docstring(node) or check).split("\n")[0]
    lines = text.split("\n")
    comment = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.startswith("# ") or line.startswith("# --"):
            break
        comment.insert(0, line[2:])
    if not comment and "  # " in lines[node.lineno - 1]:
        comment = [lines[node.lineno - 1].split("  # ")[1]]
    return " ".join(comment) or f"`{lines[node.lineno - 1]}`"


class Reader(ast.NodeVisitor):
    """Collect the places in cells where a name of llamalib is used.

    env: what each name is, as a dotted name; None for the notebook's own.
    found: (line, byte, dotted name) of each use. own: names bound here.
    """

    def __init__(self):
        self.env, self.found, self.own = {}, set(), set()

    def visit_Import(self, node):
        for alias in node.names:
            top = alias.name.split(".")[0]
            self.env[alias.asname or top] = alias.name if alias.asname else top

    def visit_ImportFrom(self, node):
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self.env[alias.asname or alias.name] = full
            self.note(alias.lineno, alias.col_offset, full)

    def note(self, line, column, dotted):
        if dotted.startswith("llamalib."):
            self.found.add((line, column, dotted))

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.note(
                node.lineno, node.col_offset, self.env.get(node.id) or ""
            )
        else:
            self.bind(node.id)

    def bind(self, name):
        self.env[name] = None
        self.own.add(name)

    def visit_Attribute(self, node):
        self.visit(node.value)
        dotted = self.dotted(node)
        column = node.end_col_offset - len(node.attr)
        self.note(node.end_lineno, column, dotted)

    def dotted(self, node) -> str:
        if isinstance(node, ast.Attribute):
            front = self.dotted(node.value)
            return front and f"{front}.{node.attr}"
        found = isinstance(node, ast.Name) and self.env.get(node.id)
        return found or ""

    def visit_Call(self, node):
        self.generic_visit(node)
        if self.dotted(node.func).split(".")[-1] in TAKE_NAMES:
            for each in node.keywords:
                full = f"llamalib.{each.arg}"
                self.note(each.lineno, each.col_offset, full)

    def visit_Assign(self, node):
        self.visit(node.value)  # before its targets hide a name
        for target in node.targets:
            self.visit(target)

    def visit_scope(self, node):
        """Visit a function or a comprehension with names of its own."""
        if hasattr(node, "name"):
            self.bind(node.name)
        outside, inner = self.env, {}
        if isinstance(node, SCOPES):
            inner = dict.fromkeys(local_names(node))
            self.own.update(inner)
        self.env = ChainMap(inner, outside)
        for each in getattr(node, "generators", ()):  # they bind its names
            self.visit(each)
        self.generic_visit(node)
        self.env = outside

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_scope
    visit_ClassDef = visit_ListComp = visit_SetComp = visit_scope
    visit_DictComp = visit_GeneratorExp = visit_scope


def local_names(node) -> set[str]:
    """Return the names that a function binds: arguments and assignments."""
    names = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return names | {n.id for n in stored if isinstance(n.ctx, ast.Store)}


@dataclass
class Links:
    """A page's links: by cell id (line, column, name); by word in the text."""

    cells: dict[str, list[tuple[int, int, Name]]]
    words: dict[str, Name]


def read_series(notebooks: dict[str, dict], package: Package) -> dict:
    """Return {file: Links}, and note in `package` where names are taught.

    notebooks: by file, their JSON, in the order of the series.
    """
    inner = {n.name: n for n in package.names.values() if n.inner}
    for file, cells in code(notebooks):
        for key, source, tags in cells:
            names = sum(map(defined, ast.parse(source).body), [])
            for name in names if "llamalib" in tags else ():
                if name in inner:
                    inner[name].cell = inner[name].cell or (file, key)
    return {
        file: read(file, cells, package) for file, cells in code(notebooks)
    }


def code(notebooks: dict[str, dict]):
    """Yield each file with its code cells: (id, source, tags)."""
    for file, notebook in notebooks.items():
        cells = (c for c in notebook["cells"] if c["cell_type"] == "code")
        yield (
            file,
            [
                (c["id"], "".join(c["source"]), c["metadata"].get("tags", ()))
                for c in cells
            ],
        )


def read(file: str, cells, package: Package) -> Links:
    """Return the links of one notebook."""
    reader, links, words = Reader(), {}, {}
    taught = {n.cell: [] for n in package.names.values()}
    for name in package.names.values():
        taught[name.cell].append(name)
    for key, source, _ in cells:
        reader.found = set()
        reader.visit(ast.parse(source))
        lines, links[key] = source.encode().split(b"\n"), []
        for line, byte, dotted in sorted(reader.found):
            if name := package.find(dotted):
                column = len(lines[line - 1][:byte].decode())
                links[key].append((line, column, name))
                words[name.name] = name
                name.first = name.first or (file, key)
        for name in taught.get((file, key), ()):
            reader.env[name.name], words[name.name] = name.anchor, name
            reader.own.discard(name.name)
    exported = {w.split(".")[1]: n for w, n in package.exported().items()}
    words = {w: n for w, n in words.items() if n.inner or w in exported}
    clear = {w: n for w, n in exported.items() if "_" in w}
    words = {**package.exported(), **clear, **words}
    return Links(
        links, {w: n for w, n in words.items() if w not in reader.own}
    )
