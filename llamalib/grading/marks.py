r"""Mark a folder of submissions: a table, and a page for each student."""

import csv
import html
import io
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from ..files import ROOT, listing
from ..tasks.notebooks import all_notebooks, write
from .assignments import exercises
from .judging import HIDDEN
from .sandbox import refuse_unless_isolated

LONGEST = 3600  # seconds for one submission, judge included
FORMS = "STUDENT/05_attention.ipynb or STUDENT_05_attention.ipynb"
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{0}</title>
<style>body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto }}
pre {{ white-space: pre-wrap }} td, th {{ vertical-align: top;
text-align: left; padding: 0 1em 0 0 }}</style>
<h1>{0}</h1>{1}
</html>
"""
TABLE = "<table><tr><th>exercise<th>points<th>the check says</tr>{}</table>"


def find_submissions(folder: Path) -> tuple[dict, list[str]]:
    r"""Return the submissions, and what else the folder holds.

    The first is a dict from (student, notebook's stem) to a path. Raises
    ValueError for a folder without any, or with two files for one notebook.
    """
    stems = "|".join(path.stem for path in all_notebooks())
    form = re.compile(rf"(?:(.+)[ _.-])?({stems})(?:[ _-]?\(?\d+\)?)?\.ipynb")
    found, others = {}, []
    for path in sorted(folder.iterdir()):
        inside = path.is_dir() and not path.is_symlink()
        files = sorted(path.iterdir()) if inside else [path]
        for file in files:
            match = form.fullmatch(file.name)
            student = path.name if inside else match and match[1]
            if not match or not student:
                others.append(str(file.relative_to(folder)))
            elif (student, match[2]) in found:
                both = f"{found[student, match[2]].name} and {file.name}"
                raise ValueError(f"{student!r} has {both}: keep one of them")
            else:
                found[student, match[2]] = file
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
    seed: int = 0,
    unsafe: bool = False,
) -> None:
    r"""Mark all submissions in a folder; write a table and pages.

    out: of the table (default: marks.csv in the folder). The pages are in a
    folder next to it. A file that differs is kept under another name.
    notebook: only these, by stem. jobs: submissions at the same time.
    seconds: for an answer to one check. seed: of the hidden checks.
    unsafe: run the answers without a sandbox.
    Raises FileNotFoundError, ValueError, or RuntimeError without a sandbox.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; expected one")
    ours = {path.stem: path for path in all_notebooks()}
    for stem in notebook or ():
        if stem not in ours:
            names = ", ".join(ours)
            raise ValueError(f"no notebook {stem!r}; expected {names}")
    if unsafe:
        print("no sandbox: the answers run with all your rights")
    else:
        refuse_unless_isolated()
    found, others = find_submissions(folder.resolve())
    out = out or folder / "marks.csv"
    own = out.name, out.stem
    for name in others:
        if Path(name).parts[0] not in own:
            print(f"ignored: {shown(name)}; expected {FORMS}")
    some = notebook or ours
    found = {key: path for key, path in found.items() if key[1] in some}
    variants = [0, *(HIDDEN * seed + n for n in range(1, HIDDEN + 1))]
    options = ["--seconds", str(seconds), "--variants", *map(str, variants)]
    options += ["--unsafe"] * unsafe

    def mark(key):
        result = marked(found[key], key[1], ours[key[1]], options)
        points, most = total(result)
        print(f"{shown(key[0])}  {key[1]}: {points} of {most}", flush=True)
        return key, result

    with ThreadPoolExecutor(jobs) as pool:
        results = dict(pool.map(mark, sorted(found)))
    write_results(results, out)


def marked(path: Path, stem: str, ours: Path, options: list[str]) -> dict:
    """Return what a judge in a process of its own says of a submission."""
    module = [sys.executable, "-m", f"{__package__}.judging"]
    how = dict(cwd=ROOT, capture_output=True, timeout=LONGEST)
    try:
        done = subprocess.run([*module, path, stem, *options], **how)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        reason = f"not finished after {LONGEST} s"
    except ValueError:  # it ended before its result
        reason = done.stderr.decode(errors="replace")[-300:]
    words = f"the judge failed, please report it: {reason}"
    marks = {e.number: (0, e.points, words) for e in exercises(ours)}
    return dict(marks=marks, notes={})


def total(*results: dict) -> tuple[int, int]:
    """Return the points of some results, and the most there can be."""
    marks = [m for each in results for m in each["marks"].values()]
    return sum(m[0] for m in marks), sum(m[1] for m in marks)


def write_results(results: dict, out: Path) -> None:
    """Write the table, with a line for each student, and the pages."""
    columns = {(s, n): m[1] for (_, s), r in results.items()
               for n, m in r["marks"].items()}  # fmt: skip
    columns = dict(sorted(columns.items()))
    heads = [f"{stem} {n}" for stem, n in columns]
    rows = [["student", "points", "of", *heads]]
    for student in sorted({student for student, _ in results}):
        own = {s: r for (who, s), r in results.items() if who == student}
        found = {(s, n): m[0] for s, r in own.items()
                 for n, m in r["marks"].items()}  # fmt: skip
        points = sum(found.values()), sum(columns.values())
        marks = (found.get(column, "") for column in columns)
        rows.append([safe(student), *points, *marks])
        name = quote(os.fsencode(student), safe=" ") + ".html"
        save(out.with_suffix("") / name, page(student, own))
        print(f"{shown(student)}: {points[0]} of {points[1]}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    save(out, text.getvalue())
    pages = out.with_suffix("")
    print(f"ready: {out}, and a page for each student in {pages}")


def page(student: str, results: dict) -> str:
    """Return a student's page in HTML."""
    parts = []
    for stem, result in results.items():
        heading = "{}: {} of {}".format(stem, *total(result))
        rows = [
            f"<tr><td>{n}<td>{found} of {most}<td><pre>{html.escape(words)}"
            f"</pre>"
            for n, (found, most, words) in result["marks"].items()
        ]
        parts += [f"<h2>{heading}</h2>", TABLE.format("\n".join(rows))]
        for cell, words in result["notes"].items():
            parts.append(f"<pre>{html.escape(f'{cell}: {words}')}</pre>")
    return PAGE.format(html.escape(shown(student)), "\n".join(parts))


def save(path: Path, text: str) -> None:
    """Write a file; keep another one that is there under a new name."""
    data = text.encode(errors="backslashreplace")
    if path.exists() and path.read_bytes() != data:
        n, old = 0, path
        while old.exists():
            n += 1
            old = path.with_name(f"{path.stem}.{n}{path.suffix}")
        path.rename(old)
        print(f"{path.name} differed: it is now {old.name}")
    write(path, data)


def safe(text: str) -> str:
    """Return a text that no spreadsheet takes as a formula."""
    return "'" + text if text[:1] in "=+-@\t\r\n" else text


def shown(text: str) -> str:
    """Return a name in printable characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for c in text)  # fmt: skip
