r"""From the figures to tables, a picture and the README's section.

    python bench/report.py

Reads `bench/results/generation-*.json` and writes the `.md` and `.png`
beside each, and the tables in README.md between its two marks. A figure that
was never measured is "not measured": nothing is guessed, and nothing is
computed but medians, ratios and shares of what the JSON holds.
"""

import json
import statistics
from pathlib import Path

from plan import PLANS, POSITIONS, PREFILLS, PROMPT

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
NOT = "not measured"
OURS, COMPILED = "ours bfloat16", "ours compile=True bfloat16"
INT8 = "ours int8"
HF, HF32 = "transformers bfloat16", "transformers float32"
CPP = "llama.cpp bfloat16"
NO_GPU = "not yet run on a machine with a GPU"


def nothing(device: str) -> dict:
    """The result of a run that never was."""
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
    """The last result of a device, or `nothing`."""
    file = path_of(device, "json")
    if not file.is_file():
        return nothing(device)
    return json.loads(file.read_text(encoding="utf-8"))


def figures(row: dict, what: str) -> list[float]:
    """A row's figures, one a round; none where it was not measured."""
    found = row.get(what)
    return found if isinstance(found, list) else []


def median(row: dict, what: str) -> float | None:
    found = figures(row, what)
    return statistics.median(found) if found else None


def ratio(row: dict, other: dict | None, what: str) -> float | None:
    """The median of the ratios round by round."""
    pairs = list(zip(figures(row, what), figures(other or {}, what)))
    return statistics.median(a / b for a, b in pairs) if pairs else None


def share(section: dict, row: dict, what: str, rows: int = 1) -> float | None:
    """Of the speed at which memory gives a step's bytes, round by round."""
    speeds = section["bandwidth"].get(what, [])
    if what == "decode":  # its own, measured just before
        speeds = row.get("bandwidth", speeds)
    if not (figures(row, what) and speeds):
        return None
    size = row["step bytes"][what]
    pairs = zip(figures(row, what), speeds)
    return statistics.median(a * size / rows / b for a, b in pairs)


def by_name(section: dict, name: str) -> dict | None:
    return next((r for r in section["rows"] if r["name"] == name), None)


def number(x: float | None, form: str = "3") -> str:
    """Three significant digits, or what is said where there is none."""
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
    """Why what is missing is missing, a line each."""
    found = {}
    for row in section["rows"]:
        if row.get("missing"):
            found.setdefault(row["missing"], []).append(row["name"])
            continue
        for what, value in row.items():
            if isinstance(value, str) and what.split()[0] in TASKS:
                found.setdefault(value, []).append(f"{row['name']} ({what})")
    few = [r["name"] for r in section["rows"] if was_asked_little(section, r)]
    if few:
        found["asked for a generation alone"] = few
    lines = [f"{', '.join(who)}: {why}" for why, who in found.items()]
    return f"Not measured: {'; '.join(lines)}.\n" if lines else ""


def was_asked_little(section: dict, row: dict) -> bool:
    """Whether a row lacks a task of the section's first row."""
    tasks = {what.split()[0] for what in section["rows"][0]}
    asked = {what.split()[0] for what in row}
    return not row.get("missing") and "batch" in tasks - asked


TASKS = ("first", "decode", "prefill", "position", "batch", "peak", "cold")


def generation_table(section: dict, limited: bool = True) -> str:
    """Decoding, one row a peer; limited: by memory, which is a column."""
    hf, cpp = by_name(section, HF), by_name(section, CPP)
    hf32 = by_name(section, HF32)
    heads = ["", "tokens/s", "÷ transformers", "÷ llama.cpp"]
    others = [hf or hf32, cpp or by_name(section, "llama.cpp float32")]
    if hf and hf32:
        heads = [*heads[:2], "÷ transformers bfloat16", "÷ … float32"]
        others = [hf, hf32]
    heads += limited * ["of the limit"] + [f"first token of {PROMPT}, ms"]
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
    """Prefill, load and memory."""
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
    """The rows that were asked for a task, and those never begun."""
    return [
        row
        for row in section["rows"]
        if row.get("missing") or any(k.startswith(task + " ") for k in row)
    ]


def position_table(section: dict) -> str:
    """tokens/s behind a text, and what the cache's bytes say of it."""
    lines = []
    for row in grid_rows(section, "position"):
        speeds = [median(row, f"position {p}") for p in POSITIONS]
        lines.append([row["name"], *map(number, speeds)])
        if row["name"] in (OURS, COMPILED) and not row.get("missing"):
            said = [by_bytes(section, row, p) for p in POSITIONS]
            lines.append(["… as the bytes say", *map(number, said)])
    return table(["position", *map(str, POSITIONS)], lines)


def by_bytes(section: dict, row: dict, position: int) -> float | None:
    """The speed at the first position, slowed as its bytes grow."""
    first = f"position {POSITIONS[0]}"
    speed = median(row, first)
    if speed is None:
        return None
    sizes = row["step bytes"]
    return speed * sizes[first] / sizes[f"position {position}"]


def kept_far(section: dict, row: dict) -> float | None:
    """The speed at the last position, over what the bytes say."""
    far = POSITIONS[-1]
    speed = median(row, f"position {far}")
    said = by_bytes(section, row, far)
    return None if None in (speed, said) else speed / said


def batch_table(section: dict, batches) -> str:
    """tokens/s of all rows together."""
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
    """The cache's bytes, and how memory grows."""
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
    """On what it was measured."""
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
            text += f"{100 * section['busy']:.0f} % of the time: over a few "
            text += "percent, others were at work here. "
    return text.rstrip() + "\n"


def cpu_targets(result: dict) -> list[tuple]:
    """What we ask on a CPU: words, figure of a row, ≥ or ≤, bound, form."""
    sections = result["sections"]
    one = sections["1b"]
    f32 = sections.get("float32", {"rows": []})
    pocket = sections.get("pocket", {"rows": []})
    cpp, hf, hf32 = by_name(one, CPP), by_name(one, HF), by_name(f32, HF32)
    best = [median(r, "decode") for r in pocket["rows"][:2]]
    best = max((x for x in best if x is not None), default=None)
    grown = one.get("repeat", {}).get("grown")
    grown = None if grown is None else grown / 1e6
    length = f"prefill {PREFILLS[0]}"

    def over_f32(row):
        return ratio(by_name(f32, row["name"]) or {}, hf32, "decode")

    return [
        (
            "decode ÷ transformers",
            lambda row: ratio(row, hf, "decode"),
            "≥",
            1.7,
            "times",
        ),
        ("decode ÷ transformers float32", over_f32, "≥", 1.7, "times"),
        (
            "decode ÷ llama.cpp",
            lambda row: ratio(row, cpp, "decode"),
            "≥",
            1.15,
            "times",
        ),
        (
            "decode, of the limit",
            lambda row: share(one, row, "decode"),
            "≥",
            0.75,
            "percent",
        ),
        (
            f"decode at position {POSITIONS[-1]} ÷ as the bytes say",
            lambda row: kept_far(one, row),
            "≥",
            0.9,
            "times",
        ),
        (
            f"seconds of a prefill of {PREFILLS[0]} ÷ llama.cpp's",
            lambda row: ratio(row, cpp, length),
            "≤",
            0.85,
            "times",
        ),
        (
            f"seconds to the first token of {PROMPT} ÷ llama.cpp's",
            lambda row: ratio(row, cpp, "first"),
            "≤",
            2,
            "times",
        ),
        (
            "tokens/s of int8 ÷ bfloat16",
            ratio(by_name(one, INT8) or {}, by_name(one, OURS), "decode"),
            "≥",
            1.2,
            "times",
        ),
        ("tokens/s of the pocket Llama", best, "≥", 400, "3"),
        ("MB that 200 generations leave", grown, "≤", 5, "3"),
    ]


def cuda_targets(result: dict) -> list[tuple]:
    """What we ask on a GPU; as `cpu_targets`."""
    one = result["sections"]["1b"]
    hf, many = by_name(one, HF), PLANS["cuda"].sections["1b"].batches[-1]
    grown = one.get("repeat", {}).get("grown")
    grown = None if grown is None else grown / 1e6

    def gain(row):
        more = {"decode": row.get(f"batch {many}")}
        return ratio(more, {"decode": row.get("batch 1")}, "decode")

    return [
        (
            "decode, of the limit",
            lambda row: share(one, row, "decode"),
            "≥",
            0.6,
            "percent",
        ),
        (
            "decode ÷ transformers",
            lambda row: ratio(row, hf, "decode"),
            "≥",
            5,
            "times",
        ),
        (f"tokens/s of {many} rows ÷ of one", gain, "≥", 15, "times"),
        ("MB that 200 generations leave", grown, "≤", 5, "3"),
    ]


TARGETS = {"cpu": cpu_targets, "cuda": cuda_targets}


def target_table(result: dict) -> str:
    """Ours as it is, and with what `compile=True` does, which is asked."""
    one, lines = result["sections"]["1b"], []
    rows = [by_name(one, name) or {} for name in (OURS, COMPILED)]
    for words, figure, sign, bound, form in TARGETS[result["device"]](result):
        found = [figure, None]  # where compile=True is not asked about
        if callable(figure):
            found = [figure(row) if row else None for row in rows]
        asked, met = found[callable(figure)], NOT
        if asked is not None:
            enough = asked >= bound if sign == "≥" else asked <= bound
            met = "yes" if enough else "**no**"
        cells = [number(x, form) for x in found]
        if not callable(figure):
            cells[1] = "–"
        wanted = number(bound, form) if form == "percent" else str(bound)
        lines.append([words, *cells, f"{sign} {wanted}", met])
    heads = ["ours, bfloat16", "as it is", "compile=True", "asked for", "met"]
    return table(heads, lines)


def how_generation(section: dict, limited: bool = True) -> str:
    """How a `generation_table` was measured."""
    rounds = len(section["bandwidth"].get("decode", []))
    text = (
        f"Greedy, a prompt of {PROMPT} ids and {section['new']} new ones, one "
        f"row; medians of {rounds or 'no'} rounds, in which all take turns; "
        "a ratio is the median of the rounds' ratios. Two ids are generated "
        "first and not timed. "
    )
    if limited:
        return text + (
            "The limit is the speed at which the memory, measured just "
            "before, gives the bytes of the weights and the cache: each "
            "peer's own bytes.\n"
        )
    return text + (
        "No limit is given: weights as small as these stay in a processor's "
        "cache, whose speed was not measured.\n"
    )


HOW_LOAD = (
    "Prefill: from a prompt of so many ids to the next id, the shorter one "
    "the median of three, the longer once. Loaded: with the files read "
    "before and the packages imported; ours opens a tokenizer "
    "too, the others are given ids. Peak memory: of "
    "the process, mapped files and libraries included, after generating. "
    "Logits: the norm of the difference from the first row's, over its norm, "
    "after a prompt and after two more ids; a peer that differs by more than "
    "rounding ends the run before anything is timed.\n"
)
HOW_POSITION = (
    "tokens/s of one row behind so many positions: the median of 8 steps, and "
    "of the rounds. "
    "The cache holds random numbers instead of a text, llama.cpp's a text. "
    "What the bytes say: the speed at the first position, times the bytes "
    "of a step there over the bytes of a step here.\n"
)
HOW_BATCH = (
    f"tokens/s of all rows together, prompts of {PROMPT} ids: the median of "
    "16 steps, and of the rounds; in brackets the ratio to transformers.\n"
)


HOW = HOW_LOAD, HOW_POSITION, HOW_BATCH


PICTURE = "![tokens per second, by peer and position]({})\n"


def summary(result: dict) -> str:
    """What the README shows of a result: speed, by position and by batch."""
    one, device = result["sections"]["1b"], result["device"]
    batches = PLANS[device].sections["1b"].batches
    parts = [machine_line(result)]
    if not result["machine"]:  # the other tables would say it again
        return "\n".join([*parts, generation_table(one)])
    place = f"bench/results/generation-{device}"
    words = "Every figure, what we ask of it, and how it was measured"
    parts += [
        PICTURE.format(f"{place}.png"),
        "tokens/s of one row:\n",
        generation_table(one),
        "… behind so many positions:\n",
        position_table(one),
        "… of several rows together:\n",
        batch_table(one, batches),
        f"{words}: [{place}.md]({place}.md)\n",
    ]
    return "\n".join(parts)


def markdown(result: dict) -> str:
    """All tables of a result."""
    mark, sections = "##", result["sections"]
    parts = [machine_line(result)]
    if result["machine"]:
        name = path_of(result["device"], "png").name
        parts.append(PICTURE.format(name))
    if "1b" in sections:
        one = sections["1b"]
        parts += [f"{mark} What we ask of it\n", target_table(result)]
        parts += [
            f"{mark} Llama 3.2-1B's shapes, one row\n",
            generation_table(one),
            how_generation(one) if result["machine"] else "",
            load_table(one),
            HOW_LOAD,
            f"{mark} By position\n",
            position_table(one),
            HOW_POSITION,
            f"{mark} By batch\n",
            batch_table(one, PLANS[result["device"]].sections["1b"].batches),
            HOW_BATCH,
            reasons(one),
        ]
        memory = memory_lines(one, "1B")
        if "pocket" in sections:
            memory += memory_lines(sections["pocket"], "the pocket")
        if memory:
            parts += [f"{mark} Memory\n", memory]
    for name, title in (
        ("float32", "In float32"),
        ("pocket", "The pocket Llama"),
    ):
        if name in sections:
            found = sections[name]
            limited = name != "pocket"
            parts += [f"{mark} {title}\n", generation_table(found, limited)]
            parts += [how_generation(found, limited), reasons(found)]
    if not result["machine"]:  # how nothing was measured
        parts = [p for p in parts if p not in HOW]
    return "\n".join(part for part in parts if part)


TITLES = {"cpu": "on a CPU", "cuda": "on a GPU"}


def document(result: dict) -> str:
    """The .md of a device."""
    return (
        f"# How fast it generates: {TITLES[result['device']]}\n\n"
        + markdown(result)
    )


def readme_section() -> str:
    """What stands between the README's two marks."""
    parts = [BEGIN]
    for device, title in TITLES.items():
        parts += [
            f"### {title[0].upper()}{title[1:]}",
            summary(read(device)).rstrip(),
        ]
    return "\n\n".join([*parts, END])


def in_readme(text: str) -> str:
    """The README with its section written again."""
    before, rest = text.split(BEGIN)
    return before + readme_section() + rest.split(END)[1]


def save(result: dict) -> None:
    """Write the JSON, and everything that is made of it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    path_of(result["device"], "json").write_text(text, encoding="utf-8")
    main()


def main() -> None:
    from picture import draw

    for device in PLANS:
        result = read(device)
        if result["machine"]:
            text = document(result)
            path_of(device, "md").write_text(text, encoding="utf-8")
            draw(result).savefig(path_of(device, "png"), dpi=150)
    text = in_readme(README.read_text(encoding="utf-8"))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
