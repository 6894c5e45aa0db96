"""Which names in a notebook's code are llamalib's, and where each is taught.

Nothing is imported: the package and the notebooks are parsed.
"""

import ast
from collections import defaultdict
from dataclasses import dataclass
from importlib.util import resolve_name
from itertools import takewhile

from llamalib.load import ROOT

TAKE_NAMES = "break_it", "replaced"  # keywords: llamalib's functions
LESSONS = "lessons"  # no cell teaches what it holds


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
        """The full name, such as llamalib.model.apply_rotary_emb."""
        return f"{self.module}.{self.name}"

    @property
    def inner(self) -> bool:
        """Whether it is of llamalib, not of a lesson."""
        return self.module.split(".")[0] != LESSONS

    @property
    def address(self) -> str:
        """The page, from the site's root, that says what it is."""
        if self.cell:
            return f"{self.cell[0].removesuffix('.ipynb')}.html#{self.cell[1]}"
        return f"names.html#{self.anchor}"


class Package:
    """The public names of llamalib, by full name and by other names."""

    def __init__(self):
        self.names, self.aliases = {}, {}
        files = [*(ROOT / "llamalib").glob("*.py")]
        for file in sorted([*files, *(ROOT / LESSONS).glob("*.py")]):
            package = module = ".".join(file.relative_to(ROOT).parent.parts)
            if file.stem != "__init__":
                module = f"{package}.{file.stem}"
            if file.stem != "__main__":
                self.read(module, file.read_text(encoding="utf-8"), package)

    def read(self, module: str, text: str, package: str) -> None:
        """Add the public names of a module, and what it imports."""
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom):
                start = "." * node.level + (node.module or "")
                start = resolve_name(start, package)
                for alias in node.names:
                    here = f"{module}.{alias.asname or alias.name}"
                    self.aliases[here] = f"{start}.{alias.name}"
            for name in defined(node):
                if name == "_ROOMS":
                    for each, room in ast.literal_eval(node.value).items():
                        here = f"{module}.{each}"
                        self.aliases[here] = f"{module}{room}.{each}"
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


def defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines: no imports."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return stored(*(getattr(node, "targets", None) or [node.target]))
    return [node.name] if hasattr(node, "name") else []


def stored(*nodes: ast.AST) -> list[str]:
    """Return the names to which the code of the nodes assigns."""
    inner = (each for node in nodes for each in ast.walk(node))
    names = (each for each in inner if isinstance(each, ast.Name))
    return [each.id for each in names if isinstance(each.ctx, ast.Store)]


def about(node: ast.stmt, text: str) -> str:
    """Return one line about a definition: its docstring's, or its comment."""
    if hasattr(node, "name"):
        check = f"Check exercise {node.name[-1]}."
        return (ast.get_docstring(node) or check).split("\n")[0]
    *above, line = text.split("\n")[: node.lineno]
    words = takewhile(lambda x: x[:2] == "# " and x[2] != "-", above[::-1])
    comment = " ".join(each[2:] for each in [*words][::-1])
    return comment or line.partition("  # ")[2]


def uses(tree: ast.Module, names: dict[str, str], own: set[str]):
    """Yield (line, byte, dotted name) where a cell uses imported names.

    names: what each imported name is; the cell's imports are added.
    own: what the cell itself binds.
    """
    for node in ast.walk(tree):  # the imports before what is inside others
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            start = f"{node.module}." if hasattr(node, "module") else ""
            for alias in node.names:
                full = names[alias.asname or alias.name] = start + alias.name
                yield alias.lineno, alias.col_offset, full
        if isinstance(node, (ast.Name, ast.Attribute)):
            front, *rest = ast.unparse(node).split(".")
            if front in names and front not in own:
                column = node.end_col_offset - len((rest or [front])[-1])
                full = ".".join([names[front], *rest])
                yield node.end_lineno, column, full
        if isinstance(node, ast.Call):
            if ast.unparse(node.func).split(".")[-1] in TAKE_NAMES:
                for each in node.keywords:
                    full = f"llamalib.{each.arg}"
                    yield each.lineno, each.col_offset, full


def bound(tree: ast.Module) -> set[str]:
    """Return the names that a cell binds at any depth: no imports."""
    scopes = ast.FunctionDef, ast.ClassDef
    names = {n.name for n in ast.walk(tree) if isinstance(n, scopes)}
    names |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    return names.union(stored(tree))


@dataclass
class Links:
    """A page's links: by cell its source and (line, column, name) in it;
    by word in the text, a name."""

    cells: dict[str, tuple[str, list[tuple[int, int, Name]]]]
    words: dict[str, Name]


def read_series(notebooks: dict[str, dict], package: Package) -> dict:
    """Return {file: Links}, and note in `package` where names are taught.

    notebooks: by file, their JSON, in the order of the series.
    """
    inner = {n.name: n for n in package.names.values() if n.inner}
    code, taught = defaultdict(dict), defaultdict(list)
    for file, notebook in notebooks.items():
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            code[file][cell["id"]] = source = "".join(cell["source"])
            tags = cell["metadata"].get("tags", ())
            if any(tag.startswith("llamalib:") for tag in tags):
                for node in ast.parse(source).body:
                    for name in defined(node):
                        if name in inner:
                            name = inner.pop(name)
                            name.cell = file, cell["id"]
                            taught[name.cell].append(name)
    return {
        file: read(file, cells, taught, package)
        for file, cells in code.items()
    }


def read(file: str, cells: dict, taught: dict, package: Package) -> Links:
    """Return the links of one notebook."""
    links, words, names, own = {}, {}, {}, set()
    for key, source in cells.items():
        tree, found = ast.parse(source), []
        here = bound(tree)
        lines = source.encode().split(b"\n")
        for line, byte, dotted in sorted(set(uses(tree, names, here))):
            if name := package.find(dotted):
                column = len(lines[line - 1][:byte].decode())
                found.append((line, column, name))
                words[name.name] = name
                name.first = name.first or (file, key)
        links[key] = source, found
        own |= here
        names = {n: full for n, full in names.items() if n not in here}
        for name in taught.get((file, key), ()):
            names[name.name], words[name.name] = name.anchor, name
            own.discard(name.name)
    exported = {w.split(".")[1]: n for w, n in package.exported().items()}
    words = {w: n for w, n in words.items() if n.inner or w in exported}
    clear = {w: n for w, n in exported.items() if "_" in w}
    words = {**package.exported(), **clear, **words}
    return Links(links, {w: n for w, n in words.items() if w not in own})
