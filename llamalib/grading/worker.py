r"""The process in the sandbox: run a learner's cells, and call their function.

It holds no check: it takes inputs and gives outputs over its pipe.
"""

import ast
import linecache
import os
import sys
import types

MEMORY, FILE, SECONDS = 4 * 2**30, 64 * 2**20, 1200  # address space, CPU time
FILES = 256  # open at once


def limit(memory: int = MEMORY) -> None:
    """Limit this process's memory, files and CPU time, for good."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = dict(AS=memory, FSIZE=FILE, CPU=SECONDS, CORE=0, NOFILE=FILES)
    for name, most in limits.items():
        try:
            kind = getattr(resource, f"RLIMIT_{name}")
            resource.setrlimit(kind, (most, most))
        except (AttributeError, OSError, ValueError):
            pass  # macOS has no limit of memory


class Shell:
    """IPython's shell, of which only what runs Python is done."""

    def __init__(self, execute):
        self.execute = execute

    def run_line_magic(self, name: str, line: str, *rest) -> None:
        """Run the statement of %time; leave out other magics."""
        self.run_cell_magic(name, "", line)

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Run the cell of %%time and %%capture; leave out other magics."""
        if name in ("time", "capture"):
            self.execute(cell)

    def __getattr__(self, name):
        return lambda *given: None


def plain_python(source: str) -> str:
    """Return a cell with calls of `Shell` for %magic, !command and ?help."""
    try:
        ast.parse(source)
        return source
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        return TransformerManager().transform_cell(source)


def notebook() -> tuple:
    """Return two functions: to run a cell, and to find what has a name."""
    from ..course.judge import explain

    main = sys.modules["__main__"] = types.ModuleType("__main__")
    names = vars(main)
    names["display"] = lambda *shown: None
    names["get_ipython"] = lambda: Shell(execute)

    def execute(source: str, name: str = "a magic") -> None:
        """Run a source with the notebook's names."""
        exec(compile(source, name, "exec"), names)

    def run(name: str, source: str) -> str | None:
        """Run a cell; return None, or its error."""
        try:
            source = plain_python(source)
            lines = source.splitlines(keepends=True)
            linecache.cache[name] = len(source), None, lines, name
            execute(source, name)
        except (Exception, SystemExit) as error:
            return explain(error)
        finally:
            if pyplot := sys.modules.get("matplotlib.pyplot"):
                pyplot.close("all")  # which the next cell does not need

    def find(name: str):
        """Return what the notebook calls by a name."""
        return names[name]

    return run, find


def serve() -> None:
    """Answer the judge's questions until the pipe ends."""
    read, write = (os.fdopen(os.dup(n), f"{m}b") for n, m in enumerate("rw"))
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    limit()
    from .wire import Lost, Worker

    wire = Worker(read, write, notebook())
    try:
        while True:
            wire.serve(*wire.receive())
    except Lost:
        os._exit(0)


if __name__ == "__main__":
    serve()
