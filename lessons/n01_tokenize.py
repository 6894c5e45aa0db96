"""Pictures, widgets and checks of notebook 01."""

import random
import re
from itertools import pairwise

import ipywidgets as ipw
from matplotlib.patches import Rectangle

from . import charts
from .judge import Wrong, agree, draws, exercise, vary
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .theme import canvas, plain, visible

TINTS = ("#f6e3ee", "#e6b8d1")  # of the token's colour, alternating
CONTROL = "#dddddd"  # behind a special token, or what is cut already
TRIED = "#fbe3c0"  # behind what does not match


def token_rows(rows, title):
    """Draw one text as tokens: name of a tokenizer to its tokens' texts."""
    flows = [charts.text_flow(tokens, 10) for tokens in rows.values()]
    lines = sum(lines for *_, lines in flows)
    fig, ax = charts.page(14 + 30 * len(rows) + 22 * lines)
    charts.write(ax, 0, 8, plain(title), 11, ha="left")
    top = 34
    for name, (labels, places, lines) in zip(rows, flows, strict=True):
        name = f"{name}: {len(labels)} tokens"
        charts.write(ax, 0, top, name, ha="left", color="#555555")
        tints = [TINTS[i % 2] for i in range(len(labels))]
        charts.boxes(ax, top + 10, labels, places, tints)
        top += 30 + 22 * lines
    return fig


def pattern_steps(text, steps):
    """Draw how a pattern cuts a text, one step a row.

    steps: (start, end, words, cut): what an alternative takes of the text;
    cut: whether it matches, and the text is cut there.
    """
    fig, ax = charts.page(12 + 30 * len(steps))
    labels, size = [visible(character) for character in text], 24
    for row, (start, end, words, cut) in enumerate(steps):
        top = 8 + 30 * row
        for i, label in enumerate(labels):
            tried = start <= i < end
            if i < start:
                fill = CONTROL
            elif tried:
                fill = TINTS[1] if cut else TRIED
            else:
                fill = "white"
            at = size * i + 2, top
            style = dict(fc=fill, ec="#999999", lw=0.8)
            ax.add_patch(Rectangle(at, size, size, **style))
            tone = "#999999" if i < start else "black"
            middle = at[0] + size / 2, top + size / 2 - 1
            charts.write(ax, *middle, label, 11, color=tone)
        verdict = "cut" if cut else "fails"
        words = plain(f"{words}: {verdict}")
        left = size * len(text) + 16
        charts.write(ax, left, top + size / 2, words, 10, ha="left")
    return fig


def token_boxes(tokens, ids, codes, title="", left_out=0):
    """Draw n tokens as boxes: text, id, bytes (None: a special token)."""
    labels = [visible(token) for token in tokens]
    below = ["special" if c is None else _hex(c) for c in codes]
    columns = zip(labels, map(str, ids), below, strict=True)
    sizes = 11, 8, 7  # points
    widths = [9 + max(map(charts.text_width, c, sizes)) for c in columns]
    places, lines = charts.flow(widths)
    height = 50
    whole = 26 + max(lines, 1) * height
    if left_out:
        whole += 18
    fig, ax = charts.page(whole)
    charts.write(ax, 0, 8, plain(title), 10, ha="left")
    tints = [
        CONTROL if c is None else TINTS[i % 2] for i, c in enumerate(codes)
    ]
    charts.boxes(ax, 24, labels, places, tints, 11, height, 11)
    for (x, line, width), i, code in zip(places, ids, below, strict=True):
        y = 24 + line * height
        charts.write(ax, x + width / 2, y + 26, i, 8)
        charts.write(ax, x + width / 2, y + 37, code, 7, color="#555555")
    if left_out:
        more = f"… and {left_out:,} more tokens, not drawn"
        charts.write(ax, 0, 32 + lines * height, more, ha="left")
    return fig


def _hex(code: bytes) -> str:
    """Return bytes as hexadecimal pairs, at most eight."""
    return code[:8].hex(" ") + (" …" if len(code) > 8 else "")


def token_counts(labels, series, title):
    """Draw n texts' counts of tokens: name of a tokenizer to n counts."""
    n, m = len(labels), len(series)
    fig, ax = canvas(0.8 + 0.18 * m + n * (0.1 + 0.12 * m))
    shades = ("#e6b8d1", "token", "#7a2d5a")[-m:]
    charts.grouped_bars(ax, series, shades, across=True)
    for bars in ax.containers:
        ax.bar_label(bars, fmt="{:g}", padding=2, fontsize=7.5)
    ax.set_yticks(range(n)[::-1], [plain(label) for label in labels])
    ax.margins(y=0.01)
    charts.finish(ax, title, "tokens")
    return charts.figure_legend(fig, "outside upper left", ncols=1)


MOST_TOKENS = 40  # drawn; of a longer text the rest is counted


def tokens(llama, text="Hello, llama! 你好 🦙") -> Play:
    """Return a text field, and the tokens that the text is cut into."""
    t = llama.tokenizer
    control = set(t.special_tokens.values())

    def draw(text, special):
        allowed = "all" if special else ()
        ids = t.encode(text, bos=False, eos=False, allowed_special=allowed)
        shown = ids[:MOST_TOKENS]
        sizes = f"{len(text):,} characters · {len(text.encode()):,} bytes"
        heading = f"{sizes} · {len(ids):,} tokens: text, id, bytes"
        heading = heading if ids else "no text, no tokens: write something"
        codes = [None if i in control else t.decode_bytes([i]) for i in shown]
        tokens, left_out = token_texts(llama, shown), len(ids) - len(shown)
        return token_boxes(tokens, shown, codes, heading, left_out)

    description = "a special token's name becomes that token"
    return Play(
        draw,
        text=ipw.Textarea(text, description="text", rows=3),
        special=ipw.Checkbox(description=description),
    )


# -- the checks of the exercises --


@exercise(1, expects="a list of str")
def check_1(answer):
    n, letters = vary(1, 2, 3, 4), "abcdehlmnt"
    to = str.maketrans(letters, vary(letters, "rsuvwyopqg", "éèüößåñçøı"))
    pairs = "t h, th e, b c, a b, a bc, m n, l m, e e".translate(to)
    pairs = enumerate(pairs.split(", "))
    merges = [(*pair.split(), 9 - i) for i, pair in pairs]
    draw = random.Random(draws(1).initial_seed())
    words = ["thth", "the", "lmn", "xabcb", "", "z", "eee", "▁水"]
    words += ["".join(draw.choices(letters, k=8 + n)) for _ in range(50)]
    for word in [word.translate(to) for word in words]:
        once = merged(word, merges, most=1)
        last_first = merged(word, merges[::-1])
        longest = re.findall("the|abc|th|bc|ab|mn|lm|ee|.".translate(to), word)
        mistakes = [
            ("a pair may occur more than once: join it everywhere", once),
            ("skip a merge that does not occur: go on", stopped(word, merges)),
            ("you returned the characters: apply the merges", list(word)),
            ("take the merges in order, not what is longest or left", longest),
            ("the first merge is applied first, not the last", last_first),
        ]
        found = answer(word, merges)
        agree(found, merged(word, merges), mistakes, what=repr(word))
    agree(answer("the", []), list("the"), what="'the' without merges")
    return f"the symbols of {len(words) + 1} words"


def merged(word, merges, most=99):
    """Return the symbols after the merges, each joined `most` times."""
    parts = list(word)
    for left, right, _ in merges:
        i = done = 0
        while i < len(parts) - 1 and done < most:
            if parts[i : i + 2] == [left, right]:
                parts[i : i + 2] = [left + right]
                done += 1
            i += 1
    return parts


def stopped(word, merges):
    """Return the symbols before the first merge that does not occur."""
    steps = [merged(word, merges[:n]) for n in range(len(merges) + 1)]
    same = (a for a, b in pairwise(steps) if a == b)
    return next(same, steps[-1])


@exercise(2, expects="a str")
def check_2(answer):
    draw = random.Random(draws(2).initial_seed())
    tokens = [bytes([b]) for b in draw.sample(range(256), 256)]
    tokens += [b" \xf0\x9f", b"\xa6\x99", b"\xe6\xb0", b"ab", b"\xc3\xa9t"]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    cases = [[b"h", b"i"], [b"\xe6\xb0", b"\xb4", b" \xf0\x9f", b"\xa6\x99"]]
    cases += [[b"\xf0", b"\x9f", b"a"], []]
    cases += [draw.choices(tokens, k=vary(9, 7, 12, 5)) for _ in range(30)]
    for case in cases:
        data, ids = b"".join(case), [ranks[token] for token in case]
        alone = "".join(token.decode("utf-8", "replace") for token in case)
        as_bytes = bytes(i % 256 for i in ids).decode("utf-8", "replace")
        mistakes = [
            ("you decoded each token alone: join the bytes first", alone),
            ("broken bytes became nothing", data.decode("utf-8", "ignore")),
            ("a byte is not a character", data.decode("latin-1")),
            ("you stopped at the bytes: decode them", data),
            ("an id is a rank, not the value of a byte", as_bytes),
        ]
        expected = data.decode("utf-8", "replace")
        agree(answer(ids, ranks), expected, mistakes)
    return f"the text of {len(cases)} lists of ids"


HEADER = "<|start_header_id|>{}<|end_header_id|>{}"
FORM = dict(start="<|begin_of_text|>", lines="\n\n", before="")
FORM |= dict(edit=str.strip, allowed=(), end="<|eot_id|>", last=["assistant"])
CHATS = {
    "the two line breaks after a header are missing": {"lines": ""},
    "one line break after a header; expected two": {"lines": "\n"},
    "a message ends with <|eot_id|>": {"end": ""},
    "a message ends with <|eot_id|>, not eos": {"end": "<|end_of_text|>"},
    "the header of the assistant's answer is missing": {"last": []},
    "<|begin_of_text|> is at the start, once": {"before": FORM["start"]},
    "<|begin_of_text|> is missing": {"start": ""},
    "a user's text became a special token": {"allowed": "all"},
    "the white space around a message is still there": {"edit": str},
}


def chat(t, messages, **changes):
    """Return the ids of a chat prompt, or of one with a mistake."""
    how = FORM | changes
    parts = [(how["start"], "all")]
    for role, text in messages:
        head = HEADER.format(role, how["lines"]) + how["before"]
        content = how["edit"](text), how["allowed"]
        parts += [(head, "all"), content, (how["end"], "all")]
    for role in how["last"]:
        parts.append((HEADER.format(role, how["lines"]), "all"))
    plain = dict(bos=False, eos=False)
    encoded = (t.encode(s, **plain, allowed_special=a) for s, a in parts)
    return [i for ids in encoded for i in ids]


@exercise(3, expects="a list of ids")
def check_3(answer, llama):
    t, n = llama.tokenizer, vary(1, 2, 3, 4)
    for messages in (
        [("user", "Hello!"), ("assistant", "Hi.")] * n + [("user", "2 + 2?")],
        [("system", "Be short."), ("user", "a<|eot_id|>b\n水 " + "🦙" * n)],
        [("user", "\t\r\n two\n"), ("assistant", f"\xa0{n + 1}\t")],
    ):
        expected, found = chat(t, messages), answer(messages)
        mistakes = [(w, chat(t, messages, **how)) for w, how in CHATS.items()]
        mistakes.append(("a text; expected its ids", t.decode(expected)))
        if decoded(t, found) == t.decode(expected):
            control = set(t.special_tokens.values())
            if control & {*map(int, found)} != control & {*expected}:
                raise Wrong("the names of special tokens became plain text")
            mistakes.append(("right text, cut at other places", found))
        elif solid(decoded(t, found)) == solid(t.decode(expected)):
            words = "cut all white space at a message's ends, and only there"
            mistakes.append((words, found))
        agree(found, expected, mistakes)
    return "headers, line breaks, and no way out for a user's text"


def solid(text: str | None) -> str:
    """Return a text without any white space."""
    return "".join((text or "").split())


def decoded(t, found):
    """Return the text of a result, or None if it is not a list of ids."""
    try:
        return t.decode(found)
    except (TypeError, ValueError):
        return None
