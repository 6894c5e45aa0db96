"""Make the project's virtual environment, and remove only what it made.

The Makefile runs this file by itself, before anything is installed, so it
needs the standard library only:

    python -I .ci/environment.py FOLDER base|dev|browser|site|bench
    python -I .ci/environment.py FOLDER clean
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "pyproject.toml", ROOT / "constraints.txt"
OURS = "made-by-llamalib"  # a file in each folder that this program made
WORDS = {
    "base": "installing into {}, once: a minute or more",
    "dev": "installing into {} what the tests need, once",
    "browser": "installing into {} what controls a browser, once",
    "site": "installing into {} what builds the site, once",
    "bench": "installing into {} what is measured, once: llama.cpp compiles "
    "for minutes",
}
WITHOUT = (
    "llama-cpp-python does not install here: llama.cpp is not measured; the "
    "next make bench tries again"
)


def main(folder, task) -> int:
    """Make the environment and install into it, or remove it."""
    if sys.version_info < (3, 11):
        print("Python 3.11 or newer is needed: make PYTHON=python3.12 …")
        return 1
    try:
        with only_one() as lock:
            if task == "clean":
                return clean(Path(folder))
            return install(Path(folder), task, lock)
    except (OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1


def only_one():
    """Wait until no other process makes an environment for this clone.

    The system ends the lock with the last process that holds it, killed or
    not. Windows has no such lock: run one at a time there.
    """
    lock = LISTS[0].open("rb")
    try:
        import fcntl
    except ImportError:
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another make installs into this clone: waiting", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def install(folder: Path, task: str, lock) -> int:
    """Install a list of packages, unless a stamp says that it is done."""
    stamp = folder / f"{task}.done"
    newest = max(file.stat().st_mtime for file in LISTS)
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return 0
    # an installer that outlives a killed make keeps the lock
    keep = {} if sys.platform == "win32" else {"pass_fds": [lock.fileno()]}
    make(folder, keep)
    print(WORDS[task].format(folder), flush=True)
    what = "." if task == "base" else f".[{task}]"
    command = [python_of(folder), "-m", "pip", "install", "--quiet"]
    command += ["-c", "constraints.txt", "-e", what]
    done = subprocess.run(command, cwd=ROOT, **keep)
    if done.returncode == 0:
        stamp.touch()
    elif task == "bench":
        print(WITHOUT)
        return 0
    return done.returncode


def make(folder: Path, keep: dict) -> None:
    """Make a virtual environment, unless a complete one is there.

    Raises FileExistsError for a folder that holds anything else.
    """
    ours, new = folder / OURS, not folder.exists()
    begun = ours.exists() and ours.read_text() != "complete"
    if ours.exists() and not python_of(folder).exists():
        begun = True  # the Python that made it has gone
    if (folder / "pyvenv.cfg").exists() and not begun:
        return
    if not (new or begun) and (folder.is_file() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} exists and is no virtual environment: it stays as it "
            "is. Name another folder, as in make VENV=.venv"
        )
    folder.mkdir(parents=True, exist_ok=True)
    ours.write_text("begun")
    empty(folder)  # of what a killed run left
    try:
        command = [sys.executable, "-m", "venv", folder]
        subprocess.run(command, check=True, **keep)
    except BaseException:
        empty(folder)
        ours.unlink()
        if new:
            folder.rmdir()
        raise
    ours.write_text("complete")


def empty(folder: Path) -> None:
    """Delete what is in a folder that this program made, but not its mark."""
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != OURS:
            each.unlink()


def clean(folder: Path) -> int:
    """Delete an environment that this program made, and what was built."""
    default = folder.resolve() == ROOT / ".venv"
    if sys.platform == "win32" and Path(sys.prefix) == folder.resolve():
        print(f"Windows removes no program that runs: delete {folder} by hand")
        return 1
    if (folder / OURS).exists() or default and python_of(folder).exists():
        shutil.rmtree(folder)
    elif folder.exists():
        print(f"{folder} was not made by this project: it stays as it is")
    for built in (ROOT / "data" / "build", ROOT / "build" / "site"):
        shutil.rmtree(built, ignore_errors=True)
    return 0


def python_of(folder: Path) -> Path:
    """Return the Python of a virtual environment."""
    windows = folder / "Scripts" / "python.exe"
    return windows if windows.exists() else folder / "bin" / "python"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
