"""The rules of the package's architecture, each as a search for violations.

Each rule takes the project's root folder and yields one line per violation,
"path:line: what is wrong". The code is parsed, never imported.
"""

import ast
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

ROOMS = (
    "formats",
    "fast",
    "parallel",
    "viz",
    "course",
    "grading",
    "verify",
    "tasks",
)
COMMANDS = ("commands", "tasks", "grading")  # they may import every room
# Lines of .py files in each room, comments and blank lines included.
LINES = {
    "core": 1750,
    "commands": 200,
    "tasks": 720,
    "formats": 1350,
    "fast": 800,
    "viz": 3000,
    "viz with E to H": 3300,  # the pictures of the last appendices
    "parallel": 300,
    "course": 2700,
    "grading": 1435,
    "verify": 450,
    "site": 1130,  # what makes the pages, which is no room of the package
}
FUNCTION_LINES = {"llamalib": 30, "notebooks": 25}
# The calls that the project promises, whoever uses them.
PUBLIC_CALLS = {
    "LLAMA_1B",
    "apply_rotary_emb",
    "attention",
    "attention_maps",
    "break_it",
    "causal_mask",
    "decode_one",
    "feed_forward",
    "find_checkpoint",
    "forward",
    "generate",
    "generate_batch",
    "load",
    "precompute_freqs_cis",
    "prefill",
    "record",
    "repeat_kv",
    "rms_norm",
    "transformer_block",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


# -- reading the project --


class Source:
    """One parsed Python file, or one code cell of a notebook.

    Attributes:
        label: its path from the root; of a cell, with the cell's number.
        module: the dotted name, such as "llamalib.viz.base"; of a cell, "".
        tags: of a cell.
    """

    def __init__(self, label: str, text: str, module="", tags=()):
        self.label, self.text = label, text
        self.module, self.tags = module, tags
        self.tree = ast.parse(text, label)

    def at(self, line: ast.AST | int, message: str) -> str:
        """Return one line of a report."""
        line = line if isinstance(line, int) else line.lineno
        return f"{self.label}:{line}: {message}"

    @property
    def room(self) -> str:
        """The room that the module is in: "core" for the package itself."""
        parts = self.module.split(".")[1:]
        if parts and parts[0] in ROOMS:
            return parts[0]
        return "commands" if parts == ["__main__"] else "core"


def modules(root: Path) -> list[Source]:
    """Return every module of the package."""
    found = []
    for file in sorted((root / "llamalib").rglob("*.py")):
        path = file.relative_to(root)
        module = ".".join(path.with_suffix("").parts)
        text = file.read_text(encoding="utf-8")
        found.append(Source(path.as_posix(), text, module))
    return found


def cells(root: Path) -> list[Source]:
    """Return the code cells of all notebooks, the exercises' checks aside."""
    found = []
    for file in sorted((root / "notebooks").rglob("*.ipynb")):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
        for number, cell in enumerate(code, 1):
            tags = cell.get("metadata", {}).get("tags", ())
            if not any(tag.startswith("check-") for tag in tags):
                path = file.relative_to(root).as_posix()
                label = f"{path}, cell {number}"
                text = "".join(cell["source"])
                found.append(Source(label, text, tags=tags))
    return found


def imported(source: Source) -> dict[str, str]:
    """Return what each imported name is, as an absolute dotted name."""
    found = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                found[alias.asname or top] = (
                    alias.name if alias.asname else top
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{origin(source, node)}.{alias.name}"
                found[alias.asname or alias.name] = name
    return found


def origin(source: Source, node: ast.ImportFrom) -> str:
    """Return the absolute name of the module that `from … import` names."""
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    if package[-1] == "__init__":
        package.pop()
        package = package[: len(package) - node.level + 1]
    else:
        package = package[: -node.level]
    return ".".join([*package, *filter(None, [node.module])])


def dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """Return "torch.backends.mkldnn" for that chain of attributes.

    Subscripts are skipped. None if the chain begins with anything but an
    imported name.
    """
    parts = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


def import_names(source: Source, node: ast.AST) -> list[str]:
    """Return the absolute names that an import statement asks for."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = origin(source, node)
        return [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return []


def at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk the nodes that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (*Function.__args__, ast.Lambda)):
            yield node
            yield from at_import_time(node)


# -- 1: shared means two readers --


def public_names(source: Source) -> dict[str, int]:
    """Return the public functions, classes and constants, each with a line."""
    found = {}
    for node in source.tree.body:
        targets = []
        if isinstance(node, Definition):
            found[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    found[name.id] = name.lineno
    return {n: line for n, line in found.items() if not n.startswith("_")}


class Uses(ast.NodeVisitor):
    """Collect which names of the core a piece of code uses.

    A use is an imported name, an attribute of an imported module
    (`llamalib.generate`), or a keyword of `break_it` or `replaced`, which
    take the functions of llamalib by name.
    """

    def __init__(self, source: Source, own: set[str]):
        self.names, self.own, self.found = imported(source), own, set()
        self.module = source.module

    def visit_Name(self, node):
        name = self.names.get(node.id)
        if name and name.startswith("llamalib."):
            self.found.add(tuple(name.rsplit(".", 1)))
        elif node.id in self.own and isinstance(node.ctx, ast.Load):
            self.found.add((self.module, node.id))

    def visit_Attribute(self, node):
        name = dotted(node, self.names)
        if name and name.startswith("llamalib."):
            self.found.add(tuple(name.rsplit(".", 1)))
        self.generic_visit(node)

    def visit_Call(self, node):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("break_it", "replaced"):
            for keyword in node.keywords:
                self.found.add(("llamalib", keyword.arg))
        self.generic_visit(node)


def uses(source: Source, node: ast.AST, own=frozenset()) -> set[tuple]:
    """Return the (module, name) pairs of llamalib that a node uses."""
    visitor = Uses(source, own)
    visitor.visit(node)
    return visitor.found


def exports(root: Path) -> dict[str, tuple[str, str]]:
    """Return what `llamalib.name` is, as (module, name)."""
    file = root / "llamalib" / "__init__.py"
    source = Source("", file.read_text(encoding="utf-8"), "llamalib.__init__")
    found = {}
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                pair = origin(source, node), alias.name
                found[alias.asname or alias.name] = pair
    return found


def unshared(root: Path) -> Iterator[str]:
    """Find public names of the core that serve one notebook, or nobody.

    A name is shared if two notebooks read it, or if the package, its
    benchmark or the pocket's recipe uses it. What one notebook alone reads
    belongs in that notebook. Three details:

    - A use inside a definition that is itself unshared does not count.
    - `viz/nb05.py` and `course/nb05.py` count as notebook 05.
    - A cell tagged `llamalib` that teaches the name reads it.

    Exempt: the promised calls.
    """
    core = [s for s in modules(root) if s.room == "core"]
    core = [s for s in core if not s.module.endswith("__init__")]
    public = {s.module: public_names(s) for s in core}
    readers = readings(root, public)
    failed = set()
    while True:
        found = {
            pair
            for pair, uses in readers.items()
            if pair not in failed
            and pair[1] not in PUBLIC_CALLS
            and not is_shared({who for who, by in uses if by not in failed})
        }
        if not found:
            break
        failed |= found
    for source in core:
        for name, line in public[source.module].items():
            pair = source.module, name
            if pair in failed:
                uses = readers[pair]
                who = {who for who, by in uses if by not in failed}
                only = ", ".join(who) + " alone" if who else "nothing"
                yield source.at(line, f"{name} is used by {only}")


def is_shared(readers: set[str]) -> bool:
    """Return whether two notebooks, or any module, are among the readers."""
    notebooks = {who for who in readers if who.startswith("notebook ")}
    return len(notebooks) > 1 or notebooks != readers


def readings(root: Path, public: dict) -> dict[tuple, set[tuple]]:
    """Return for each public name its uses, as (reader, definition).

    The definition is the pair (module, name) that holds the use, or None
    where that is not a public definition of the core.
    """
    exported = exports(root)
    taught = {name: (m, name) for m, found in public.items() for name in found}
    found = {(m, n): set() for m, names in public.items() for n in names}

    def note(pairs, reader, by=None):
        for pair in pairs:
            if pair[0] == "llamalib":
                pair = exported.get(pair[1])
            if pair in found and pair != by:
                found[pair].add((reader, by))

    for source in [*modules(root), *scripts(root)]:
        if source.module == "llamalib.__init__":
            continue
        own = set(public.get(source.module, ()))
        for node in source.tree.body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                by = source.module, getattr(node, "name", None)
                by = by if by in found else None
                note(uses(source, node, own), reader_of(source), by)
    for source, names in notebook_sources(root):
        reader = f"notebook {Path(source.label).stem.split('_')[0]}"
        note(uses(source, source.tree), reader)
        note({taught[n] for n in names if n in taught}, reader)
    return found


def reader_of(source: Source) -> str:
    """Return as whom a module reads: a notebook's viz as that notebook."""
    number = re.fullmatch(r"llamalib\.(?:viz|course)\.nb(\w+)", source.module)
    return f"notebook {number[1]}" if number else source.label


def scripts(root: Path) -> list[Source]:
    """Return the benchmark's files and the recipe's, which read llamalib."""
    files = [*root.glob("bench/*.py"), *root.glob("data/recipe/*.py")]
    return [
        Source(
            f.relative_to(root).as_posix(), f.read_text(encoding="utf-8")
        )
        for f in sorted(files)
    ]


def notebook_sources(root: Path) -> Iterator[tuple[Source, set[str]]]:
    """Yield every notebook as one source, with the names that it teaches."""
    notebooks = defaultdict(list)
    for cell in cells(root):
        notebooks[cell.label.split(",")[0]].append(cell)
    for label, found in notebooks.items():
        names = set()
        for cell in found:
            if "llamalib" in cell.tags:
                names |= set(public_names(cell))
        yield Source(label, "\n".join(c.text for c in found)), names


# -- 2: arrows point outwards --

OWNERS = {  # a library, and the one room that may import it
    "matplotlib": "viz",
    "ipywidgets": "viz",
    "safetensors": "formats",
    "tokenizers": "formats",
    "huggingface_hub": "formats",
    "transformers": None,
}
# Modules of the core that import a room inside a function.
LAZY = {
    "llamalib.__init__": ("formats", "fast", "parallel"),
    "llamalib.loading": ("formats", "fast", "parallel"),
    "llamalib.decoding": ("formats", "fast", "parallel"),
}


def inward_imports(root: Path) -> Iterator[str]:
    """Find imports of a room, or of a room's library, where none may be."""
    for source in modules(root):
        early = {id(node) for node in at_import_time(source.tree)}
        for node in ast.walk(source.tree):
            for name in import_names(source, node):
                problem = import_problem(source, name, id(node) in early)
                if problem:
                    yield source.at(node, problem)
                    break


def import_problem(source: Source, name: str, early: bool) -> str | None:
    """Return what is wrong with one import, or None."""
    parts = name.split(".")
    owner = OWNERS.get(parts[0], source.room)
    if owner != source.room:
        place = f"only {owner}/ may" if owner else "nothing may"
        return f"imports {parts[0]}, which {place}"
    if parts[0] != "llamalib" or len(parts) < 2 or parts[1] not in ROOMS:
        return None
    room = parts[1]
    if room == source.room or source.room in COMMANDS:
        return None
    if room in ("viz", "course", "tasks"):
        return f"imports the room {room}, which only {room}/ may"
    if source.room != "core":
        return None
    if early:
        return f"the core imports the room {room} at import time"
    if room not in LAZY.get(source.module, ()):
        return f"imports the room {room}; only loading and decoding may"
    return None


# -- 3: speed is prepared, never sneaked in --

SWITCHES = {
    "gc": "disable enable freeze set_threshold",
    "locale": "setlocale",
    "logging": "basicConfig disable",
    "matplotlib": "rc use",
    "matplotlib.pyplot": "rc switch_backend",
    "numpy.random": "seed",
    "os": "chdir putenv umask unsetenv",
    "random": "seed",
    "signal": "signal",
    "sys": "setrecursionlimit setswitchinterval",
    "torch": (
        "manual_seed set_default_device set_default_dtype set_flush_denormal "
        "set_float32_matmul_precision set_num_interop_threads "
        "set_num_threads set_printoptions use_deterministic_algorithms"
    ),
    "torch.cuda": "set_device",
    "torch._dynamo": "reset",
    "warnings": "filterwarnings simplefilter",
}
# Calls of anything below these names switch something.
SWITCHING = (
    "os.environ.clear",
    "os.environ.pop",
    "os.environ.setdefault",
    "os.environ.update",
    "matplotlib.rcParams.update",
    "matplotlib.pyplot.rcParams.update",
    "torch._C._set",
    "torch._dynamo.config.",
    "torch._inductor.config.",
)
STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)


def process_switches(root: Path) -> Iterator[str]:
    """Find settings of the whole process, anywhere but in the commands.

    These are calls by name (`SWITCHES`), and every assignment to an
    attribute or item of what was imported (`os.environ["X"] = …`).
    """
    for source in modules(root):
        if source.room in COMMANDS:
            continue
        names = with_aliases(source)
        if source.module == "llamalib.viz.play":
            del names["gc"]  # paused while a picture is drawn, then restored
        for node in ast.walk(source.tree):
            found = []
            if isinstance(node, ast.Call):
                name = dotted(node.func, names) or ""
                if is_switch(name):
                    found = [name]
                elif getattr(node.func, "id", "") == "setattr":
                    found = [dotted(node.args[0], names)]
            elif isinstance(node, STATEMENTS):
                targets = [
                    target
                    for target in targets_of(node)
                    if not isinstance(target, ast.Name)
                ]
                found = [dotted(target, names) for target in targets]
            for name in filter(None, found):
                yield source.at(node, f"sets {name} for the whole process")


def with_aliases(source: Source) -> dict[str, str]:
    """Return the imported names, and variables that stand for parts of
    them, as in `onednn = torch.backends.mkldnn`."""
    names = imported(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            (target,) = node.targets
            if isinstance(target, ast.Name):
                name = dotted(node.value, names)
                if name and target.id not in names:
                    names[target.id] = name
    return names


def is_switch(name: str) -> bool:
    """Return whether a call of this name sets something process-wide."""
    module, _, function = name.rpartition(".")
    return (
        function in SWITCHES.get(module, "").split()
        or name.startswith(SWITCHING)
        or (
            name.startswith("torch.backends.")
            and function.startswith(("enable", "set_", "flags", "sdp_kernel"))
        )
    )


def targets_of(node: ast.stmt) -> list[ast.expr]:
    """Return what a statement assigns to, or deletes."""
    targets = getattr(node, "targets", None) or [node.target]
    return [
        each
        for target in targets
        for each in getattr(target, "elts", [target])
    ]


NOT_IN_CORE = {  # each with the modules that may
    "time": {"llamalib.roofline"},
    "timeit": set(),
    "threading": set(),
    "torch.compile": set(),
    "torch.utils.benchmark": set(),
}
NOT_IN_PACKAGE = {
    "ctypes": {"llamalib.formats.placing"},  # madvise, where Linux has it
    "subprocess": {  # what the commands start
        "llamalib.grading.marks",
        "llamalib.grading.sandbox",
        "llamalib.tasks.gpu",
        "llamalib.tasks.project",
    },
    "torch.utils.cpp_extension": set(),
}
COMPILED = {".c", ".cc", ".cpp", ".cu", ".h", ".pyx", ".rs", ".so"}


def hidden_speed(root: Path) -> Iterator[str]:
    """Find clocks, locks and compilers in the core.

    Anywhere in the package: code that is not Python, and what loads it.
    """
    for file in sorted((root / "llamalib").rglob("*")):
        if file.suffix in COMPILED:
            yield f"{file.relative_to(root).as_posix()}:1: is not Python"
    for source in modules(root):
        refused = NOT_IN_PACKAGE | (
            NOT_IN_CORE if source.room == "core" else {}
        )
        names = imported(source)
        for node in ast.walk(source.tree):
            used = import_names(source, node)
            if isinstance(node, ast.Attribute):
                used = [dotted(node, names) or ""]
            for name, allowed in refused.items():
                if source.module not in allowed and any(
                    each == name for each in used
                ):
                    yield source.at(node, f"uses {name}")


# -- 4: a budget, and names --


def lines_over_budget(root: Path) -> Iterator[str]:
    """Find rooms with more lines than their budget."""
    counts = defaultdict(dict)
    for source in modules(root):
        lines = source.text.count("\n")
        late = re.search(r"viz/nb[E-H]\.py$", source.label)
        if not late:
            counts[source.room][source.label] = lines
        if source.room == "viz":
            counts["viz with E to H"][source.label] = lines
    for file in sorted((root / "site").rglob("*.py")):
        lines = file.read_text(encoding="utf-8").count("\n")
        counts["site"][file.relative_to(root).as_posix()] = lines
    for room, files in counts.items():
        total, most = sum(files.values()), LINES[room]
        if total > most:
            label = max(files, key=files.get)
            yield (
                f"{label}:{files[label]}: the longest file of {room}, which "
                f"has {total:,} lines; its budget is {most:,}"
            )


def code_lines(source: Source, node: Function) -> int:
    """Count a function's lines of code.

    Not counted: its decorators and signature, docstrings (those of inner
    functions too), comments and blank lines. A string that spans several
    lines counts with all of them.
    """
    docs = set()
    for inner in ast.walk(node):
        if isinstance(inner, Definition) and ast.get_docstring(inner):
            doc = inner.body[0]
            docs |= set(range(doc.lineno, doc.end_lineno + 1))
    body = range(node.body[0].lineno, node.end_lineno + 1)
    return len(token_lines(source.text) & set(body) - docs)


@cache
def token_lines(text: str) -> set[int]:
    """Return the numbers of the lines that hold code."""
    nothing = (
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    )
    lines = set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type not in nothing:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines


def long_functions(root: Path) -> Iterator[str]:
    """Find functions with too many lines of code."""
    for where, found in (
        ("llamalib", modules(root)),
        ("notebooks", cells(root)),
    ):
        most = FUNCTION_LINES[where]
        for source in found:
            for node in ast.walk(source.tree):
                if isinstance(node, Function):
                    n = code_lines(source, node)
                    if n > most:
                        message = f"{node.name} has {n} lines of code"
                        yield source.at(node, f"{message}, at most {most}")


def modules_named_like_functions(root: Path) -> Iterator[str]:
    """Find modules that have the name of something they define or export.

    `from llamalib import attention` must not depend on what was imported
    before.
    """
    found = modules(root)
    exported = set(exports(root)) | lazy_exports(root)
    for source in found:
        name = source.module.rsplit(".", 1)[1]
        for node in source.tree.body:
            if isinstance(node, Definition) and node.name == name:
                yield source.at(node, f"{name} has the name of its module")
        if name in exported:
            yield source.at(1, f"llamalib exports a {name}, too")


def lazy_exports(root: Path) -> set[str]:
    """Return the names that __init__ lists as strings, for __getattr__."""
    file = root / "llamalib" / "__init__.py"
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            for inner in ast.walk(node.value):
                value = getattr(inner, "value", None)
                if isinstance(value, str) and value.isidentifier():
                    found.add(value)
    return found


# -- tests need nothing from the benchmark --


def tests_of_the_benchmark(root: Path) -> Iterator[str]:
    """Find tests that import the benchmark, its own test file aside."""
    own = {file.stem for file in root.glob("bench/*.py")} - {"__init__"}
    for file in sorted(root.glob("tests/*.py")):
        if file.name == "test_bench.py":
            continue
        text = file.read_text(encoding="utf-8")
        source = Source(file.relative_to(root).as_posix(), text)
        for node in source.tree.body:
            for name in import_names(source, node)[:1]:
                if name.split(".")[0] in {"bench", *own}:
                    yield source.at(node, f"imports {name}")
