"""Pictures, widgets and checks of notebook 01."""

import io
import operator
import random
from pathlib import Path

import ipywidgets as ipw

from llamalib.load import POCKET, ROOT

from . import charts
from .exercises import versions
from .judge import Wrong, alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
from .theme import canvas, plain, visible

TINTS = ("#f6e3ee", "#e6b8d1")  # of the token's colour, alternating
CONTROL = "#dddddd"  # behind a special token

POCKET_FILE = ROOT / POCKET / "tokenizer.model"
META_FILES = "Llama-3-tokenizer", "Llama-3.2-1B/original"

# Article 1 of the Universal Declaration of Human Rights (United Nations).
ARTICLE_1 = {
    "English": "All human beings are born free and equal in dignity and "
    "rights. They are endowed with reason and conscience and should act "
    "towards one another in a spirit of brotherhood.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et "
    "en droits. Ils sont doués de raison et de conscience et doivent agir "
    "les uns envers les autres dans un esprit de fraternité.",
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y "
    "derechos y, dotados como están de razón y conciencia, deben comportarse "
    "fraternalmente los unos con los otros.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten "
    "geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander "
    "im Geist der Brüderlichkeit begegnen.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве "
    "и правах. Они наделены разумом и совестью и должны поступать в "
    "отношении друг друга в духе братства.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात "
    "स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन "
    "प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。"
    "他们赋有理性和良心，并应以兄弟关系的精神相对待。",
}


def llama_3_file(data: Path = ROOT / "data") -> Path:
    """Return Llama 3's tokenizer.model, or say so and return the pocket's."""
    for name in META_FILES:
        if (data / name / "tokenizer.model").is_file():
            return data / name / "tokenizer.model"
    print(
        "Llama 3's tokenizer is not here: `python -m llamalib fetch "
        "Llama-3-tokenizer` brings it. Until then this is the pocket Llama's, "
        "with 2,816 merges, and its numbers are not those of the text."
    )
    return POCKET_FILE


def train_sentencepiece(text: str, merges: int):
    """Return a SentencePiece tokenizer with so many merges of a text."""
    import sentencepiece

    known = set(text.replace("\n", " ").replace(" ", "▁"))
    model = io.BytesIO()  # trained into memory, no file
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=model,
        model_type="bpe",
        byte_fallback=True,
        # unknown, begin and end; the bytes; the merges; the characters
        vocab_size=3 + 256 + merges + len(known),
        character_coverage=1.0,  # every character of the text
        minloglevel=2,  # print errors only
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


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
    # Hugging Face's tokenizers do not tell a token's bytes
    to_bytes = getattr(t, "decode_bytes", lambda ids: b"")

    def draw(text, special):
        allowed = "all" if special else ()
        ids = t.encode(text, bos=False, eos=False, allowed_special=allowed)
        shown = ids[:MOST_TOKENS]
        sizes = f"{len(text):,} characters · {len(text.encode()):,} bytes"
        heading = f"{sizes} · {len(ids):,} tokens: text, id, bytes"
        heading = heading if ids else "no text, no tokens: write something"
        codes = [None if i in control else to_bytes([i]) for i in shown]
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
    pairs = pairs.split(", ")
    merges = [(*pair.split(), 9 - i) for i, pair in enumerate(pairs)]
    draw = random.Random(draws(1).initial_seed())
    words = ["lmn", "thth", "the", "xabcb", "", "z", "eee", "▁水"]
    words += ["".join(draw.choices(letters, k=8 + n)) for _ in range(50)]
    cases = {}
    for word in [word.translate(to) for word in words]:
        by, symbols = ", ".join(pairs), " ".join(merged(word, merges))
        what = f"{word!r} becomes {symbols!r} by the merges {by}; your result"
        cases[what] = word, merges
    cases["'the' without merges"] = "the", []
    alike(answer, "01_tokenize", 1, cases)
    return f"the symbols of {len(words) + 1} words"


def merged(word, merges):
    """Return the symbols of a word after the merges."""
    parts = list(word)
    for left, right, _ in merges:
        i = 0
        while i < len(parts) - 1:
            if parts[i : i + 2] == [left, right]:
                parts[i : i + 2] = [left + right]
            i += 1
    return parts


@exercise(2, expects="a str")
def check_2(answer):
    draw = random.Random(draws(2).initial_seed())
    tokens = [bytes([b]) for b in draw.sample(range(256), 256)]
    tokens += [b" \xf0\x9f", b"\xa6\x99", b"\xe6\xb0", b"ab", b"\xc3\xa9t"]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    ranks = dict(draw.sample(list(ranks.items()), len(ranks)))  # any order
    cases = [[b"h", b"i"], [b"\xe6\xb0", b"\xb4", b" \xf0\x9f", b"\xa6\x99"]]
    cases += [[b"\xf0", b"\x9f", b"a"], []]
    cases += [draw.choices(tokens, k=vary(9, 7, 12, 5)) for _ in range(30)]
    calls = [([ranks[token] for token in case], ranks) for case in cases]
    alike(answer, "01_tokenize", 2, calls)
    return f"the text of {len(cases)} lists of ids"


@exercise(3, expects="a list of ids")
def check_3(answer, tokenizer):
    n = vary(1, 2, 3, 4)
    cases = [
        [("user", "Hello!"), ("assistant", "Hi.")] * n + [("user", "2 + 2?")],
        [("system", "Be short."), ("user", "a<|eot_id|>b\n水 " + "🦙" * n)],
        [("user", "\t\r\n two\n"), ("assistant", f"\xa0{n + 1}\t")],
    ]
    try:
        calls = [(case, tokenizer) for case in cases]
        alike(answer, "01_tokenize", 3, calls, tolerance=0)
    except Wrong as mistake:
        if not str(mistake).startswith("the result"):
            raise
        solution, _ = versions("01_tokenize", 3)
        for case in cases:
            found, right = (f(case, tokenizer) for f in (answer, solution))
            compare_texts(tokenizer, found, right)
        raise
    return "headers, line breaks, and no way out for a user's text"


def compare_texts(t, found, expected):
    """Raise Wrong with two lists' texts from their first difference on."""
    try:
        ids, text, right = list(found), t.decode(found), t.decode(expected)
    except (TypeError, ValueError):  # no list of ids
        return
    if text == right and ids != list(expected):
        names = set(t.special_tokens.values())
        both = ([i for i in each if i in names] for each in (ids, expected))
        if operator.ne(*both):
            raise Wrong("the names of special tokens became plain text")
        raise Wrong("the text is right, but cut at other places")
    same = 0
    while text[: same + 1] == right[: same + 1] and same < len(right):
        same += 1
    if text != right:
        parts = [repr(each[same : same + 40]) for each in (text, right)]
        words = "from the first difference on, yours is {}; expected {}"
        raise Wrong(words.format(*parts))
