r"""A process for a learner's code: no network, no files, no check, no time.

`bwrap` (bubblewrap, Linux) gives it its own empty system: read-only Python,
libraries, llamalib with stubs in the checks' place, and the pocket Llama.
"""

import contextlib
import errno
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from ..load import ROOT
from .wire import Function, Judge, Lost

STUB = """
import json
from pathlib import Path

DOCUMENTS = json.loads(Path(__file__).with_name("documents.json").read_text())


def __getattr__(name):
    if name.startswith("check_"):
        return lambda *given: None
    raise AttributeError(name)
"""
SYSTEM = "/usr /bin /lib /lib64 /nix /etc/ld.so.cache /etc/alternatives "
SYSTEM = (SYSTEM + "/sys/devices/system/cpu").split()
DATA = "data/pocket-llama", "data/recipe", "bench/results"
TMP = 64 * 2**20  # bytes of the one folder that may be written
# Linux's numbers: of the architecture, of the calls clone and clone3, and of
# what is refused: new processes and namespaces, the memory of others, and
# memory that no limit sees (shmget, memfd_create, memfd_secret).
CALLS = {
    "x86_64": (0xC000003E, 56, 435, "29 57 58 101 165 248 249 250 272 298 "
               "308 310 311 319 321 323 425 447"),
    "aarch64": (0xC00000B7, 220, 435, "40 97 117 194 217 218 219 241 268 270 "
                "271 279 280 282 425 447"),
}  # fmt: skip


def calls_filter() -> bytes:
    """Return a program for Linux's seccomp that allows threads alone."""
    arch, clone, clone3, refused = CALLS[platform.machine()]
    load, equal, least, bits, end = 0x20, 0x15, 0x35, 0x45, 0x06
    no, none = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    code = [(load, 0, 0, 4), (equal, 1, 0, arch), (end, 0, 0, no)]
    code += [(load, 0, 0, 0), (least, 0, 1, 0x40000000), (end, 0, 0, no)]
    for call in map(int, refused.split()):
        code += [(equal, 0, 1, call), (end, 0, 0, no)]
    code += [(equal, 0, 1, clone3), (end, 0, 0, none), (equal, 0, 3, clone)]
    thread = 0x10000  # a flag of clone, its first argument
    code += [(load, 0, 0, 16), (bits, 1, 0, thread), (end, 0, 0, no)]
    code += [(end, 0, 0, 0x7FFF0000)]
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def refuse_unless_isolated() -> None:
    """Raise RuntimeError where no sandbox can be made, and say why."""
    advice = "install bubblewrap, or name --unsafe to run them as your own"
    if not shutil.which("bwrap") or platform.machine() not in CALLS:
        raise RuntimeError(f"answers need bwrap, on Linux; {advice}")
    with tempfile.TemporaryDirectory() as folder, calls_file() as calls:
        write_package(Path(folder))
        command = isolated(Path(folder), calls.fileno())
        command += [sys.executable, "-c", ""]
        how = dict(pass_fds=[calls.fileno()], capture_output=True)
        done = subprocess.run(command, **how)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()[-200:]
        raise RuntimeError(f"bwrap makes no sandbox ({reason}); {advice}")


def calls_file():
    """Return an open file with `calls_filter`, for bwrap."""
    file = tempfile.TemporaryFile()
    file.write(calls_filter())
    file.seek(0)
    return file


def isolated(package: Path, calls: int) -> list[str]:
    """Return the command that isolates what follows it.

    package: the folder that is seen as /course; calls: of an open file.
    """
    libraries = {p for p in sys.path if p.endswith("-packages")}
    seen = {*SYSTEM, sys.prefix, sys.base_prefix, *libraries}
    views = {Path(p): ["--ro-bind", p, p] for p in seen if Path(p).exists()}
    closed = ["--remount-ro", "/dev", "--remount-ro", "/"]
    for path in (p for p in map(Path, SYSTEM) if p.is_symlink()):
        views[path] = ["--symlink", os.readlink(path), str(path)]
    for folder in (ROOT, *(Path(p, "llamalib") for p in libraries)):
        inside = any(p in folder.parents for p in views)
        if inside and folder.is_dir() and folder not in views:
            views[folder] = ["--tmpfs", str(folder)]
            closed += ["--remount-ro", str(folder)]
    views = [word for path in sorted(views) for word in views[path]]
    data = [("--ro-bind", str(ROOT / d), f"/course/{d}") for d in DATA]
    return [
        *("bwrap", "--unshare-all", "--unshare-user", "--die-with-parent"),
        *("--new-session", "--cap-drop", "ALL", "--uid", "65534"),
        *("--gid", "65534", "--hostname", "sandbox"),
        *("--size", str(TMP), "--tmpfs", "/tmp"),  # some views may be in it
        *(*views, "--proc", "/proc", "--dev", "/dev", "--chdir", "/tmp"),
        *("--ro-bind", str(package), "/course"),
        *(word for bind in data for word in bind),
        *(*closed, "--seccomp", str(calls), "--"),
    ]


def write_package(folder: Path) -> None:
    """Write llamalib into a folder, with stubs in place of the checks."""
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "llamalib", folder / "llamalib", ignore=without)
    for path in (folder / "llamalib" / "course").glob("nb*.py"):
        path.write_text(STUB)
    for each in DATA:
        (folder / each).mkdir(parents=True)


class Sandbox:
    r"""A running worker; `run` and `find` are its functions.

    package: see `write_package`; unsafe: whether to run it as the user's own.
    """

    def __init__(self, package: Path, unsafe=False):
        where = str(package) if unsafe else "/course"
        pocket = str((ROOT if unsafe else Path("/course")) / DATA[0])
        environment = dict(PYTHONPATH=where, LLAMA_DIR=pocket, HOME="/tmp")
        environment |= dict(MPLBACKEND="agg", OMP_NUM_THREADS="1")
        environment["TORCHDYNAMO_DISABLE"] = "1"  # no compiler is there
        command = [sys.executable, "-PsB", "-m", "llamalib.grading.worker"]
        how = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        with contextlib.ExitStack() as opened:
            if not unsafe:
                calls = opened.enter_context(calls_file()).fileno()
                command = isolated(package, calls) + command
                how["pass_fds"] = [calls]
            self.process = subprocess.Popen(
                command,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
                **how,
            )
        pipes = self.process.stdout, self.process.stdin
        self.wire, self.reason = Judge(*pipes), ""
        self.run, self.find = (Function(self.wire, n, "") for n in range(2))

    def end(self, reason: str = "") -> None:
        """Kill the worker and all that it has started."""
        self.reason = reason
        self.process.kill()
        with contextlib.suppress(AttributeError, OSError):  # Windows
            os.killpg(self.process.pid, signal.SIGKILL)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Kill the worker after this time; raise Lost with the reason."""
        reason = f"no answer within {seconds:g} s"
        timer = threading.Timer(seconds, self.end, [reason])
        timer.start()
        try:
            yield
        except Lost as lost:
            raise Lost(self.reason or str(lost) or self.ended()) from None
        finally:
            timer.cancel()

    def ended(self) -> str:
        """Return how the worker ended by itself."""
        try:
            status = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        signal_number = -status if status < 0 else status - 128
        if signal_number > 0:
            return f"ended with signal {signal_number}"
        return f"exited early, with status {status}"

    def close(self) -> None:
        """Kill the worker, and wait for its end."""
        self.end()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
