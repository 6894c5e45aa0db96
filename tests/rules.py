"""The rules of the package's architecture, each as a search for violations.

Each rule takes the project's root folder and yields one line per violation,
"path:line: what is wrong". The code is parsed, never imported.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOMS = (
    "viz",
    "course",
    "grading",
    "tasks",
)
COMMANDS = ("commands", "tasks", "grading")  # they may import every room
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
        commands = ["__main__"], ["chat"], ["verify"]
        return "commands" if parts in commands else "core"


def modules(root: Path) -> list[Source]:
    """Return every module of the package."""
    found = []
    for file in sorted((root / "llamalib").rglob("*.py")):
        path = file.relative_to(root)
        module = ".".join(path.with_suffix("").parts)
        text = file.read_text(encoding="utf-8")
        found.append(Source(path.as_posix(), text, module))
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


# -- 1: arrows point outwards --

OWNERS = {  # a library, and the one room that may import it
    "matplotlib": "viz",
    "ipywidgets": "viz",
    "transformers": None,
}


def inward_imports(root: Path) -> Iterator[str]:
    """Find imports of a room, or of a room's library, where none may be."""
    for source in modules(root):
        for node in ast.walk(source.tree):
            for name in import_names(source, node):
                problem = import_problem(source, name)
                if problem:
                    yield source.at(node, problem)
                    break


def import_problem(source: Source, name: str) -> str | None:
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
    if source.room != "core" and room not in ("viz", "course", "tasks"):
        return None
    return f"imports the room {room}, which only {room}/ may"


# -- 2: speed is prepared, never sneaked in --

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
        if source.module == "llamalib.parallel":
            continue  # each process has its GPU
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
    "time": {"llamalib.probe"},
    "timeit": set(),
    "threading": set(),
    "torch.compile": {"llamalib.generate"},
    "torch.utils.benchmark": set(),
}
NOT_IN_PACKAGE = {
    "ctypes": set(),
    "subprocess": {  # what the commands start
        "llamalib.grading.marks",
        "llamalib.grading.sandbox",
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


# -- tests need nothing from the benchmark --


def tests_of_the_benchmark(root: Path) -> Iterator[str]:
    """Find tests that import the benchmark, its own test files aside."""
    own = {file.stem for file in root.glob("bench/*.py")} - {"__init__"}
    for file in sorted(root.glob("tests/*.py")):
        if file.name in ("test_bench.py", "test_gpu_command.py"):
            continue
        text = file.read_text(encoding="utf-8")
        source = Source(file.relative_to(root).as_posix(), text)
        for node in source.tree.body:
            for name in import_names(source, node)[:1]:
                if name.split(".")[0] in {"bench", *own}:
                    yield source.at(node, f"imports {name}")
