r"""Mark a folder of submissions: a table, and a page for each student."""

import contextlib
import csv
import html
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha1
from itertools import count
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryFile

from ..load import ROOT, listing
from ..tasks.notebooks import all_notebooks, write
from .assignments import TEXTS, exercises, find_notebook
from .judging import FAILED, HIDDEN
from .sandbox import refuse_unless_isolated

LONGEST = 3600  # seconds for one submission, judge included
SEEDS = 10**6  # the largest
FORMS = "STUDENT/05_attention.ipynb or STUDENT_05_attention.ipynb"


def find_submissions(folder: Path) -> tuple[dict, list[str]]:
    r"""Return the submissions, and what else the folder holds.

    The first is a dict from (student, notebook's stem) to a list of files.
    Raises ValueError for a folder without any.
    """
    stems = "|".join(path.stem for path in all_notebooks())
    form = re.compile(rf"(?:(.+)[ _.-])?({stems})(?:[ _-]?\(?\d+\)?)?\.ipynb")
    found, others = {}, []
    for path in sorted(folder.iterdir()):
        inside = path.is_dir() and not path.is_symlink()
        for file in sorted(path.rglob("*")) if inside else [path]:
            match, name = form.fullmatch(file.name), file.relative_to(folder)
            student = path.name if inside else match and match[1]
            if match and student and not re.search(r"[/\\]\.", str(name)):
                found.setdefault((student, match[2]), []).append(file)
            elif not file.is_dir() or file == path:
                others.append(str(name))
    if not found:
        text = f"{folder} holds no submission but {listing(folder)}"
        raise ValueError(f"{text}; expected {FORMS}")
    return found, others


def grade(
    folder: Path,
    out: Path | None = None,
    notebook: list[str] | None = None,
    jobs: int = 1,
    seconds: float = 20,
    seed: int | None = None,
    unsafe: bool = False,
) -> None:
    r"""Mark all submissions in a folder; write a table and pages.

    out: of the table (default: marks.csv in the folder). The pages are in a
    folder next to it. A file that differs is kept under another name.
    notebook: only these, by number or name. jobs: submissions at a time.
    seconds: for an answer to one check. seed: of the hidden checks, in the
    table's last column (default: a random one). unsafe: without a sandbox.
    Raises OSError, ValueError, or RuntimeError without a sandbox or at Ctrl-C.
    """
    if seed is None:
        seed = SystemRandom().randint(0, SEEDS)
    refuse_wrong_options(folder, jobs, seconds, seed)
    chosen = list(map(find_notebook, notebook or ())) or all_notebooks()
    ours = {path.stem: path for path in chosen}
    if unsafe:
        print("no sandbox: the answers run with all your rights")
    else:
        refuse_unless_isolated()
    found, others = find_submissions(folder.resolve())
    out = out or folder / "marks.csv"
    refuse_unless_written(out)
    print(f"hidden checks of --seed {seed}")
    found = {key: found[key] for key in sorted(found) if key[1] in ours}
    if not found:
        raise ValueError(f"{folder} holds no submission of {', '.join(ours)}")
    variants = [0, *(HIDDEN * seed + n for n in range(1, HIDDEN + 1))]
    options = dict(seconds=seconds, variants=variants, unsafe=unsafe)
    results = {}
    try:
        mark_all(found, ours, options, jobs, results)
    finally:
        if results:
            write_results(results, out, seed)
    own = re.compile(rf"{re.escape(out.stem)}(\.\d+)?(\.csv)?")
    for name in others:
        if not own.fullmatch(Path(name).parts[0]):
            print(f"not marked: {shown(name)}; expected {FORMS}")
    if len(results) < len(found):
        done = f"{len(results)} of {len(found)} submissions are marked"
        raise RuntimeError(f"stopped by Ctrl-C: {done}")


def mark_all(found: dict, ours: dict, options, jobs: int, results) -> None:
    """Add the results of submissions to `results`, until Ctrl-C."""

    def mark(key):
        result = results[key] = marked(found[key], ours[key[1]], options)
        faults = FAILED, f"in a hidden check: {FAILED}"
        words = [m[2] for m in result["marks"].values()
                 if m[2].startswith(faults)]  # fmt: skip
        said = "{}  {}: {} of {}".format(shown(key[0]), key[1], *total(result))
        done = f"{len(results)}/{len(found)}  {said}"
        print(done, *map(shown, [result["problem"], *words[:1]]), flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(mark, found))


def refuse_wrong_options(folder: Path, jobs, seconds, seed) -> None:
    """Raise FileNotFoundError or ValueError with what is expected."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; expected one")
    if jobs < 1:
        raise ValueError(f"--jobs is {jobs}; expected 1 or more")
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"--seconds is {seconds}; expected more than 0")
    if not 0 <= seed <= SEEDS:
        raise ValueError(f"--seed is {seed}; expected 0 to {SEEDS:,}")


def refuse_unless_written(out: Path) -> None:
    """Make the folders of the table and pages; raise OSError or ValueError."""
    if out.suffix != ".csv" or out.is_dir():
        raise ValueError(f"--out is {out}; expected a file, as in marks.csv")
    for folder in (out.parent, out.with_suffix("")):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def marked(files: list[Path], ours: Path, options: dict) -> dict:
    """Return what a judge in a process of its own says of a submission."""
    case = json.dumps(dict(path=str(files[0]), stem=ours.stem, **options))
    command = [sys.executable, "-m", f"{__package__}.judging", case]
    how = dict(cwd=ROOT, capture_output=True, timeout=LONGEST)
    try:
        if len(files) > 1:
            names = " and ".join(file.name for file in files)
            raise FileExistsError(f"{shown(names)}: keep one of them")
        done = subprocess.run(command, **how)
        return json.loads(done.stdout)
    except FileExistsError as error:
        problem = str(error)
    except subprocess.TimeoutExpired:
        problem = f"{FAILED}: not finished after {LONGEST} s"
    except ValueError:  # it ended before its result
        if done.returncode == -signal.SIGINT:  # Ctrl-C
            raise KeyboardInterrupt from None
        problem = f"{FAILED}: {done.stderr.decode(errors='replace')[-300:]}"
    marks = {e.title: (0, e.points, "") for e in exercises(ours)}
    return dict(marks=marks, notes={}, problem=problem)


def total(*results: dict) -> tuple[int, int]:
    """Return the points of some results, and the most there can be."""
    marks = [m for each in results for m in each["marks"].values()]
    return sum(m[0] for m in marks), sum(m[1] for m in marks)


def write_results(results: dict, out: Path, seed: int) -> None:
    """Write the table, with a line for each student, and the pages."""
    most = {(stem, title): mark[1] for (_, stem), result in results.items()
            for title, mark in result["marks"].items()}  # fmt: skip
    heads, pages = [f"{stem} {title}" for stem, title in sorted(most)], {}
    rows = [["student", "points", "of", *heads, "seed", "remark"]]
    for student in sorted({student for student, _ in results}):
        own = {stem: result for (who, stem), result in results.items()
               if who == student}  # fmt: skip
        given = {(stem, title): mark[0] for stem, result in own.items()
                 for title, mark in result["marks"].items()}  # fmt: skip
        points = sum(given.values()), sum(most.values())
        marks = [given.get(column, "") for column in sorted(most)]
        remark = "; ".join(f"{stem}: {result['problem']}"
                           for stem, result in own.items()
                           if result["problem"])  # fmt: skip
        rows.append([safe(student), *points, *marks, seed, remark])
        pages[student] = page(student, own, seed)
        print(f"{shown(student)}: {points[0]} of {points[1]}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    save(out, text.getvalue())
    folder = out.with_suffix("")
    for student, text in pages.items():
        try:
            save(folder / file_name(student), text)
        except OSError as error:
            print(f"no page for {shown(student)}: {error.strerror}")
    print(f"ready: {out}, and a page for each student in {folder}")


def file_name(student: str) -> str:
    """Return the name of a student's page; a hash is in place of the rest."""
    kept = re.sub(r'[/\\:*?"<>|]', "_", shown(student))[:40]
    if kept != student:
        kept += "-" + sha1(os.fsencode(student)).hexdigest()[:8]
    return f"{kept}.html"


def page(student: str, results: dict, seed: int) -> str:
    """Return a student's page in HTML."""
    texts, parts = TEXTS["page"], []
    for stem, result in results.items():
        heading = "{}: {} of {}".format(stem, *total(result))
        rows = []
        for title, (found, most, words) in result["marks"].items():
            if found and words != "right":
                words = f"right: {words}"
            row = title, found, most, html.escape(words)
            rows.append(texts["row"].format(*row))
        notes = [f"{cell}: {words}" for cell, words in result["notes"].items()]
        parts.append(texts["part"].format(
            heading=heading, rows="".join(rows),
            notes=html.escape("\n".join([result["problem"], *notes])),
        ))  # fmt: skip
    return texts["page"].format(
        student=html.escape(shown(student)), points=total(*results.values()),
        seed=seed, parts="".join(parts),
    )  # fmt: skip


def save(path: Path, text: str) -> None:
    """Write a file; keep another one that is there under a new name."""
    data = text.encode(errors="backslashreplace")
    if path.exists() and path.read_bytes() != data:
        names = (f"{path.stem}.{n}{path.suffix}" for n in count(1))
        old = next(p for p in map(path.with_name, names) if not p.exists())
        path.rename(old)
        print(f"{path.name} differed: it is now {old.name}")
    write(path, data)


def safe(text: str) -> str:
    """Return a name for a table: printable, and never a formula."""
    text = shown(text)
    return "'" + text if text[:1] in "=+-@＝＋－＠" else text


def shown(text: str) -> str:
    """Return a name in printable characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for c in text)  # fmt: skip
