r"""Write the tables, the picture and the README's three figures of speed.

    python bench/report.py [FOLDER]

Reads `bench/results/generation-*.json` and writes the `.md` and `.png` of
each, and the figures in README.md between its two marks. It computes only
medians, ratios and shares of what the JSON holds. A figure that the JSON
lacks is "not measured".
"""

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `bench`
    sys.path[0] = str(ROOT)

from bench.plan import PLANS, POSITIONS, PREFILLS, PROMPT  # noqa: E402

RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
NOT = "not measured"
OURS, COMPILED = "ours bfloat16", "ours compile=True bfloat16"
INT8, INT4 = "ours int8", "ours int4"
# Rows of an older version, which no table shows
REMOVED = ("ours repack=True bfloat16",)
HF, HF32 = "transformers bfloat16", "transformers float32"
HF_COMPILED = "transformers compiled bfloat16"
CPP = "llama.cpp bfloat16"
NO_GPU = "not yet run on a machine with a GPU"
# Bytes per second that a GPU's memory can deliver, from NVIDIA's data sheets
PEAKS = {
    "H200": 4.8e12,
    "H100 80GB HBM3": 3.35e12,
    "A100-SXM4-80GB": 2.039e12,
    "T4": 0.32e12,
}
# Published by msaroufim/megakernels-vs-cuda-graphs, 2026-09
RECORDS = (
    ("H100", "one persistent kernel (Hazy Research)", 1028),
    ("H100", "CUDA graph, programmatic dependent launch", 1021),
    ("H100", "vLLM 0.27.1", 688),
    ("H100", "SGLang 0.5.9", 640),
    ("H200", "one persistent kernel", 1316),
    ("H200", "CUDA graph, programmatic dependent launch", 1258),
    ("H200", "transformers, compiled, static cache", 622),
)
BYTES_1B = 2 * 1_235_814_400  # that a step of the 1B reads in bfloat16


def nothing(device: str) -> dict:
    """Return the result of a device on which nothing was measured."""
    sections = {}
    for name, section in PLANS[device].sections.items():
        rows = [
            {"name": row.name, "dtype": row.dtype, "missing": NO_GPU}
            for row in section.rows
        ]
        sections[name] = {"rows": rows, "new": section.new, "bandwidth": {}}
    return {"device": device, "machine": None, "sections": sections}


def path_of(device: str, ending: str) -> Path:
    return RESULTS / f"generation-{device}.{ending}"


def read(device: str) -> dict:
    """Return the last result of a device, or `nothing`."""
    file, result = path_of(device, "json"), nothing(device)
    if file.is_file():
        result |= json.loads(file.read_text(encoding="utf-8"))
    return result


def without_removed(result: dict) -> dict:
    """Return the result without the rows that `REMOVED` names."""
    sections = {
        name: section
        | {"rows": [r for r in section["rows"] if r["name"] not in REMOVED]}
        for name, section in result["sections"].items()
    }
    return result | {"sections": sections}


def age_of(result: dict) -> str:
    """Return a sentence if an older version was measured, or ""."""
    m = result["machine"]
    if m is None or "llamalib" in m:  # older ones name no version
        return ""
    return (
        f"Measured on {m['day']} with version 0.2; the compiled step and the "
        "quantized products have been rewritten since.\n"
    )


def figures(row: dict, what: str) -> list[float]:
    """Return a row's figures, one a round; [] if it was not measured."""
    found = row.get(what)
    return found if isinstance(found, list) else []


def median(row: dict, what: str) -> float | None:
    found = figures(row, what)
    return statistics.median(found) if found else None


def ratio(row: dict, other: dict | None, what: str) -> float | None:
    """Return the median of the rounds' ratios."""
    pairs = list(zip(figures(row, what), figures(other or {}, what)))
    return statistics.median(a / b for a, b in pairs) if pairs else None


def share(section: dict, row: dict, what: str, rows: int = 1) -> float | None:
    """Return the median share of the memory's limit that a step reaches."""
    speeds = section["bandwidth"].get(what, [])
    if what == "decode":  # measured just before this row
        speeds = row.get("bandwidth", speeds)
    if not (figures(row, what) and speeds):
        return None
    size = row["step bytes"][what]
    pairs = zip(figures(row, what), speeds)
    return statistics.median(a * size / rows / b for a, b in pairs)


def peak_of(result: dict) -> float | None:
    """Return the published bytes/s of the measured GPU's memory, if known."""
    gpu = (result["machine"] or {}).get("gpu", "")
    return next((peak for n, peak in PEAKS.items() if n in gpu), None)


def of_peak(result: dict, row: dict) -> float | None:
    """Return the share of the published peak that decoding reaches."""
    peak, speed = peak_of(result), median(row, "decode")
    if peak is None or speed is None:
        return None
    return speed * row["step bytes"]["decode"] / peak


def by_name(section: dict, name: str) -> dict | None:
    return next((r for r in section["rows"] if r["name"] == name), None)


def number(x: float | None, form: str = "3") -> str:
    """Format a figure: three digits, by default; or "not measured"."""
    if x is None:
        return NOT
    if form == "percent":
        return f"{100 * x:.0f} %"
    if form == "GB":
        return f"{x / 1e9:.2f}"
    if form == "times":
        return f"{x:.2f}"
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def table(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def reasons(section: dict) -> str:
    """Return one sentence on why figures are missing."""
    found = {}
    for row in section["rows"]:
        if row.get("missing"):
            found.setdefault(row["missing"], []).append(row["name"])
            continue
        for what, value in row.items():
            if isinstance(value, str) and what.split()[0] in TASKS:
                found.setdefault(value, []).append(f"{row['name']} ({what})")
    few = [
        r["name"] for r in section["rows"] if is_generation_only(section, r)
    ]
    if few:
        found["only its generation is measured"] = few
    lines = [f"{', '.join(who)}: {why}" for why, who in found.items()]
    return f"Not measured: {'; '.join(lines)}.\n" if lines else ""


def is_generation_only(section: dict, row: dict) -> bool:
    """Return whether a row was asked for no other task of its section."""
    tasks = {what.split()[0] for what in section["rows"][0]}
    asked = {what.split()[0] for what in row}
    return not row.get("missing") and "batch" in tasks - asked


TASKS = ("first", "decode", "prefill", "position", "batch", "peak", "cold")


def prompt_of(section: dict) -> int:
    """Return the ids of a generation's prompt."""
    return section.get("prompt", PROMPT)


def generation_table(section: dict, limited: bool = True) -> str:
    """Return the table of decoding; `limited` adds the memory's limit."""
    hf, cpp = by_name(section, HF), by_name(section, CPP)
    hf32 = by_name(section, HF32)
    heads = ["", "tokens/s", "÷ transformers", "÷ llama.cpp"]
    others = [hf or hf32, cpp or by_name(section, "llama.cpp float32")]
    if hf and hf32:
        heads = [*heads[:2], "÷ transformers bfloat16", "÷ … float32"]
        others = [hf, hf32]
    heads += limited * ["of the limit"]
    heads += [f"first token of {prompt_of(section)}, ms"]
    lines = []
    for row in section["rows"]:
        first = median(row, "first")
        cells = [row["name"], number(median(row, "decode"))]
        cells += [number(ratio(row, o, "decode"), "times") for o in others]
        if limited:
            cells.append(number(share(section, row, "decode"), "percent"))
        cells.append(number(None if first is None else 1000 * first))
        lines.append(cells)
    return table(heads, lines)


def load_table(section: dict) -> str:
    """Return the table of prefill, load and memory."""
    heads = ["", *(f"prefill {n}, s" for n in PREFILLS)]
    heads += [
        f"prefill {PREFILLS[0]} ÷ llama.cpp",
        "loaded, s",
        "then a first token, s",
    ]
    heads += ["peak memory, GB", "logits differ by"]
    lines = []
    for row in section["rows"]:
        short = f"prefill {PREFILLS[0]}"
        far = row.get("distance")
        lines.append(
            [
                row["name"],
                *(number(median(row, f"prefill {n}")) for n in PREFILLS),
                number(ratio(row, by_name(section, CPP), short), "times"),
                number(row.get("load"), "times"),
                number(median(row, "cold first")),
                number(median(row, "peak"), "GB"),
                number(far, "times") if far is None else f"{far:.3f}",
            ]
        )
    return table(heads, lines)


def grid_rows(section: dict, task: str) -> list[dict]:
    """Return the rows that have a task, and those that did not start."""
    return [
        row
        for row in section["rows"]
        if row.get("missing") or any(k.startswith(task + " ") for k in row)
    ]


def position_table(section: dict) -> str:
    """Return the table of tokens/s by the length of the text before."""
    lines = []
    for row in grid_rows(section, "position"):
        speeds = [median(row, f"position {p}") for p in POSITIONS]
        lines.append([row["name"], *map(number, speeds)])
        if row["name"] in (OURS, COMPILED) and not row.get("missing"):
            said = [by_bytes(section, row, p) for p in POSITIONS]
            lines.append(["… predicted by its bytes", *map(number, said)])
    return table(["position", *map(str, POSITIONS)], lines)


def by_bytes(section: dict, row: dict, position: int) -> float | None:
    """Return the speed that the bytes predict from the first position's."""
    first = f"position {POSITIONS[0]}"
    speed = median(row, first)
    if speed is None:
        return None
    sizes = row["step bytes"]
    return speed * sizes[first] / sizes[f"position {position}"]


def batch_table(section: dict, batches) -> str:
    """Return the table of tokens/s of all rows together."""
    heads = ["rows", *map(str, batches)]
    heads += [f"of the limit at {batches[-1]}"]
    hf, lines = by_name(section, HF), []
    for row in grid_rows(section, "batch"):
        cells = []
        for B in batches:
            cell = number(median(row, f"batch {B}"))
            over = ratio(row, hf, f"batch {B}")
            if over is not None and row is not hf:
                cell += f" ({over:.2f})"
            cells.append(cell)
        limit = share(section, row, f"batch {batches[-1]}", batches[-1])
        lines.append([row["name"], *cells, number(limit, "percent")])
    return table(heads, lines)


def memory_lines(section: dict, name: str) -> str:
    """Return lines on the cache's bytes and on memory that leaks."""
    first, text = section["rows"][0]["name"], ""
    for key, found in section.items():
        if not key.startswith("cache "):
            continue
        held = found["bytes"]
        held = NOT if held is None else f"{held:,} bytes"
        text += f"- a cache of {key.split()[1]} positions, {first}: {held}; "
        text += f"2·L·KV·hd·bytes·length is {found['formula']:,}\n"
    repeat = section.get("repeat")
    if repeat:
        grown = repeat.get("grown")
        said = NOT if grown is None else f"{grown / 1e6:.1f} MB"
        text += f"- {repeat['times']} generations of {repeat['new']} tokens "
        text += f"in a row, {first}, {name}: resident memory grew by {said}\n"
    return text


def machine_line(result: dict) -> str:
    """Return a line on the machine and its load."""
    m = result["machine"]
    if m is None:
        return f"The machine: {NOT}.\n"
    packages = [
        f"{name.replace('_', '-')} {v or 'not installed'}"
        for name, v in m["versions"].items()
    ]
    where = f"{m['system']}, {m['cores']} cores, {m['threads']} threads"
    where += f", {m['capability']}, "
    if m.get("gpu"):
        where = f"{m['gpu']}; {where}"
    text = f"{m['day']}, {where}{', '.join(packages)}, "
    text += f"Python {m['python']}. "
    for name, section in result["sections"].items():
        speeds = section["bandwidth"].get("decode")
        if name == "1b" and speeds:
            text += f"Memory is read at {statistics.median(speeds) / 1e9:.1f}"
            text += f" GB/s ({min(speeds) / 1e9:.1f} to "
            text += f"{max(speeds) / 1e9:.1f} in {len(speeds)} rounds). "
        if name == "1b" and section.get("busy") is not None:
            text += "Some program waited for a processor in "
            text += f"{100 * section['busy']:.0f} % of the time; above a few "
            text += "percent, other programs disturbed the measurement. "
    return text.rstrip() + "\n"


# A target: its words, a figure, which of two figures decides, ≥ or ≤, the
# bound, the form. The figure is a function of a row, for the default (0) and
# with `compile=True` (1), or one number.
DEFAULT, WITH_COMPILE = 0, 1


def cpu_targets(result: dict) -> list[tuple]:
    """Return the targets on a CPU, each with its figures."""
    sections = result["sections"]
    one, far = sections["1b"], f"position {POSITIONS[-1]}"
    f32 = sections.get("float32", {"rows": []})
    cpp, hf, hf32 = by_name(one, CPP), by_name(one, HF), by_name(f32, HF32)
    named = (by_name(one, name) or {} for name in (OURS, INT8, INT4))
    ours, int8, int4 = named
    short = f"prefill {PREFILLS[0]}"

    def over(what, other):
        return lambda row: ratio(row, other, what)

    def over_f32(row):
        return ratio(by_name(f32, row["name"]) or {}, hf32, "decode")

    def of_limit(row):
        return share(one, row, "decode")

    x, y = DEFAULT, WITH_COMPILE
    first = f"seconds, first token of {PROMPT} ÷ llama.cpp"
    return [
        ("decode ÷ transformers", over("decode", hf), y, "≥", 1, "times"),
        ("decode ÷ transformers float32", over_f32, x, "≥", 1.7, "times"),
        ("decode ÷ llama.cpp", over("decode", cpp), y, "≥", 0.95, "times"),
        ("decode, of the limit", of_limit, y, "≥", 0.85, "percent"),
        (f"{far} ÷ transformers", over(far, hf), x, "≥", 5, "times"),
        (
            f"seconds, {short} ÷ llama.cpp",
            over(short, cpp),
            x,
            "≤",
            0.9,
            "times",
        ),
        (first, over("first", cpp), x, "≤", 2, "times"),
        (
            "int8 ÷ bfloat16",
            ratio(int8, ours, "decode"),
            x,
            "≥",
            1.43,
            "times",
        ),
        ("int4 ÷ bfloat16", ratio(int4, ours, "decode"), x, "≥", 2.2, "times"),
        ("pocket Llama, tokens/s", pocket_speed(sections), x, "≥", 400, "3"),
        ("MB that 200 generations leave", grown_mb(one), x, "≤", 5, "3"),
    ]


def pocket_speed(sections: dict) -> float | None:
    """Return the tokens/s of the pocket Llama in its faster dtype."""
    rows = sections.get("pocket", {"rows": []})["rows"][:2]
    speeds = [median(row, "decode") for row in rows]
    return max((x for x in speeds if x is not None), default=None)


def grown_mb(section: dict) -> float | None:
    """Return the MB by which memory grew over repeated generations."""
    grown = section.get("repeat", {}).get("grown")
    return None if grown is None else grown / 1e6


def cuda_targets(result: dict) -> list[tuple]:
    """Return the targets on a GPU, as `cpu_targets` does."""
    one = result["sections"]["1b"]
    hf, compiled = by_name(one, HF), by_name(one, HF_COMPILED)
    many, long = PLANS["cuda"].sections["1b"].batches[-1], PREFILLS[-1]
    batch, prefill = f"batch {many}", f"prefill {long}"

    def of_limit(row):
        return share(one, row, "decode")

    def over(what, other):
        return lambda row: ratio(row, other, what)

    def speed(row):  # of seconds
        return ratio(hf or {}, row, prefill)

    def gain(row):
        more = {"decode": row.get(batch)}
        return ratio(more, {"decode": row.get("batch 1")}, "decode")

    x, y, compiled_too = DEFAULT, WITH_COMPILE, over("decode", compiled)
    return [
        ("decode ÷ transformers compiled", compiled_too, y, "≥", 2, "times"),
        (
            "decode, of the published peak",
            lambda row: of_peak(result, row),
            y,
            "≥",
            0.678,
            "percent",
        ),
        ("decode, of the limit", of_limit, y, "≥", 0.6, "percent"),
        ("decode ÷ transformers", over("decode", hf), y, "≥", 5, "times"),
        (f"{prefill}, speed ÷ transformers", speed, x, "≥", 0.9, "times"),
        (f"{many} rows ÷ transformers", over(batch, hf), y, "≥", 1.5, "times"),
        (f"tokens/s of {many} rows ÷ of one", gain, y, "≥", 15, "times"),
        ("MB that 200 generations leave", grown_mb(one), x, "≤", 5, "3"),
    ]


TARGETS = {"cpu": cpu_targets, "cuda": cuda_targets}


def target_table(result: dict) -> str:
    """Return the table of targets; the figure that decides is in bold."""
    one, lines = result["sections"]["1b"], []
    rows = [by_name(one, name) or {} for name in (OURS, COMPILED)]
    targets = TARGETS[result["device"]](result)
    for words, figure, column, sign, bound, form in targets:
        if callable(figure):
            found = [figure(row) if row else None for row in rows]
            cells = [number(x, form) for x in found]
        else:
            found, cells = [figure], [number(figure, form), "–"]
        met, decides = NOT, found[column]
        if decides is not None:
            met = decides >= bound if sign == "≥" else decides <= bound
            met = "yes" if met else "**no**"
            cells[column] = f"**{cells[column]}**"
        target = number(bound, form) if form == "percent" else str(bound)
        lines.append([words, *cells, f"{sign} {target}", met])
    heads = ["ours, bfloat16", "default", "compile=True", "target", "met"]
    return table(heads, lines)


def how_generation(section: dict, limited: bool = True) -> str:
    """Return how a `generation_table` was measured."""
    rounds = len(section["bandwidth"].get("decode", []))
    text = (
        f"Greedy, one row, a prompt of {prompt_of(section)} ids and "
        f"{section['new']} new ones. Medians of {rounds or 'no'} rounds, in "
        "which all peers take turns; a ratio is the median of the rounds' "
        "ratios. Two ids are generated first and not timed. "
    )
    if limited:
        return text + (
            "The limit: the memory's bandwidth, measured just before, over "
            "the bytes of the peer's own weights and cache.\n"
        )
    return text + (
        "No limit is given: weights as small as these stay in the CPU's "
        "cache, whose bandwidth was not measured.\n"
    )


HOW_LOAD = (
    "Prefill: from a prompt of that length to the next id; the shorter one "
    "is the median of three, the longer is measured once. Loaded: with the "
    "files read before and the packages imported; ours opens a tokenizer "
    "too, the others are given ids. Peak memory: of the process after "
    "generating, mapped files and libraries included. Logits: the norm of "
    "the difference from the first row's, over its norm, after a prompt and "
    "after two more ids. A peer that differs by more than rounding ends the "
    "run before anything is timed.\n"
)
HOW_POSITION = (
    "tokens/s of one row after a text of that length: the median of 8 steps, "
    "and of the rounds. The cache holds random numbers, in llama.cpp a text. "
    "Predicted by its bytes: the speed at the first position, times the "
    "bytes of a step there over the bytes of a step here.\n"
)
HOW_BATCH = (
    "tokens/s of all rows together, prompts of {} ids: the median of "
    "16 steps, and of the rounds; in brackets the ratio to transformers.\n"
)
PICTURE = "![tokens per second, by peer and position]({})\n"
TITLES = {"cpu": "on a CPU", "cuda": "on a GPU"}


def record_table(result: dict) -> str:
    """Return the records that others published, beside our fastest row."""
    lines = []
    for gpu, what, speed in RECORDS:
        peak = next(p for name, p in PEAKS.items() if gpu in name)
        share = number(speed * BYTES_1B / peak, "percent")
        lines.append([gpu, what, str(speed), share])
    for name in (COMPILED, HF_COMPILED):
        row = by_name(result["sections"]["1b"], name) or {}
        cells = [number(median(row, "decode"))]
        cells.append(number(of_peak(result, row), "percent"))
        lines.append(["here", name, *cells])
    heads = ["GPU", "", "tokens/s", "of the published peak"]
    return table(heads, lines)


HOW_RECORDS = (
    "Records, published by others: msaroufim/megakernels-vs-cuda-graphs, "
    "2026-09. Llama 3.2-1B, bfloat16, one row, 32 ids of prompt and 127 timed "
    "steps; the rows from here follow the same protocol, on random weights. "
    "The rows of vLLM, SGLang and transformers are quoted there from others; "
    "how those were measured is not known. "
    "The peak is of NVIDIA's data sheets: 3.35 TB/s (H100), 4.8 TB/s (H200); "
    "a step reads 2.47 GB.\n"
)


def part_lines(parts: dict) -> str:
    """Return what became of each part of `python bench/gpu.py`."""
    lines = []
    for name, found in parts.items():
        words = found["outcome"]
        if found.get("tests"):
            counts = [f"{n} {how}" for how, n in found["tests"].items()]
            words += f"; {', '.join([*counts, *found['bad']])}"
        bad = [c for c in found.get("cells", ()) if c["error"]]
        if found.get("cells"):
            words += f"; {len(found['cells'])} cells of 09, {len(bad)} failed"
            words += "".join(f"; {c['cell']}: {c['error']}" for c in bad)
        lines.append([name, words, number(found["seconds"])])
    text = table(["part", "outcome", "seconds"], lines)
    shown = [
        cell["printed"]
        for cell in parts.get("cells", {}).get("cells", ())
        if "ids" in cell
    ]
    if shown:
        text += "\nWhat 09_generate prints, on random weights:\n\n"
        letters = [x if x.isprintable() else "·" for x in "\n".join(shown)]
        text += f"    {''.join(letters)}\n"
    return text


def document(result: dict) -> str:
    """Return the .md of a device."""
    result = without_removed(result)
    title = f"# How fast it generates: {TITLES[result['device']]}\n"
    parts = [title, machine_line(result), age_of(result)]
    if result["machine"]:
        name = path_of(result["device"], "png").name
        parts.append(PICTURE.format(name))
    if "1b" in result["sections"]:
        parts += large_model(result)
    if result.get("parts"):
        parts += ["## Everything that needs a GPU\n"]
        parts += [part_lines(result["parts"])]
    for name, words in (
        ("quantized", "Quantized and compiled"),
        ("float32", "In float32"),
        ("pocket", "The pocket Llama"),
    ):
        if name in result["sections"]:
            found, limited = result["sections"][name], name != "pocket"
            parts += [f"## {words}\n", generation_table(found, limited)]
            parts += [how_generation(found, limited), reasons(found)]
    return "\n".join(part for part in parts if part)


def large_model(result: dict) -> list[str]:
    """Return the tables of the 1B's shapes."""
    sections, measured = result["sections"], bool(result["machine"])
    one = sections["1b"]
    batches = PLANS[result["device"]].sections["1b"].batches
    memory = memory_lines(one, "1B")
    if "pocket" in sections:
        memory += memory_lines(sections["pocket"], "the pocket")
    return [
        "## Targets\n",
        target_table(result),
        record_table(result) if result["device"] == "cuda" else "",
        HOW_RECORDS if result["device"] == "cuda" else "",
        "## Llama 3.2-1B's shapes, one row\n",
        generation_table(one),
        how_generation(one) if measured else "",
        load_table(one),
        HOW_LOAD if measured else "",
        "## By position\n",
        position_table(one),
        HOW_POSITION if measured else "",
        "## By batch\n",
        batch_table(one, batches),
        HOW_BATCH.format(prompt_of(one)) if measured else "",
        reasons(one),
        "## Memory\n" if memory else "",
        memory,
    ]


# Three figures for the README: words, a row, and the row that it is over.
HEADLINES = (
    ("`generate(…, compile=True)` ÷ transformers, bfloat16", COMPILED, HF),
    ("`generate(…, compile=True)` ÷ llama.cpp, bfloat16", COMPILED, CPP),
    ('`load(quantize="int4")` ÷ our bfloat16', INT4, OURS),
)


def readme_section(results: list[dict]) -> str:
    """Return what is between the README's marks: three ratios, and links."""
    results = [result for result in results if result["machine"]]
    heads = ["tokens per second, one row"]
    heads += [TITLES[result["device"]] for result in results]
    lines = [
        [words, *(number(headline(r, a, b), "times") for r in results)]
        for words, a, b in HEADLINES
    ]
    return "\n".join([BEGIN, "", table(heads, lines), *sources(results), END])


def headline(result: dict, name: str, other: str) -> float | None:
    """Return the ratio of two rows' speeds in decoding the 1B's shapes."""
    one = result["sections"]["1b"]
    row, over = by_name(one, name), by_name(one, other)
    return ratio(row or {}, over, "decode")


def sources(results: list[dict]) -> list[str]:
    """Return lines for each device: where and when, and a link."""
    lines = []
    for result in results:
        m = result["machine"]
        where = m.get("gpu") or f"{m['cores']} cores, {m['capability']}"
        file = path_of(result["device"], "md").relative_to(ROOT).as_posix()
        words = f"all figures {TITLES[result['device']]}"
        lines.append(f"{m['day']}, {where}: [{words}]({file}).\n")
        lines += [age_of(result)] if age_of(result) else []
    return lines


def in_readme(text: str) -> str:
    """Return the README's text with its figures written again."""
    before, rest = text.split(BEGIN)
    section = readme_section([read(device) for device in PLANS])
    return before + section + rest.split(END)[1]


def write(result: dict) -> None:
    """Write the JSON."""
    RESULTS.mkdir(exist_ok=True, parents=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    path_of(result["device"], "json").write_text(text, encoding="utf-8")


def save(result: dict) -> None:
    """Write the JSON, and everything that is made of it."""
    write(result)
    main()


def main() -> None:
    """Write everything that is made of the JSON files."""
    for device in PLANS:
        result = read(device)
        if path_of(device, "json").is_file():
            text = document(result)
            path_of(device, "md").write_text(text, encoding="utf-8")
        if result["machine"]:
            draw_picture(result)
    if RESULTS == ROOT / "bench" / "results":
        text = in_readme(README.read_text(encoding="utf-8"))
        README.write_text(text, encoding="utf-8")


def draw_picture(result: dict) -> None:
    """Write the .png of a device, where matplotlib is installed."""
    try:
        from bench.picture import draw
    except ImportError as error:
        print(f"no picture: {error.name} is not installed", file=sys.stderr)
        return
    draw(without_removed(result)).savefig(
        path_of(result["device"], "png"), dpi=150
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        RESULTS = Path(sys.argv[1]).resolve()
    main()
