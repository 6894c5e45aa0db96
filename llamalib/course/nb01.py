r"""Checks of the exercises of notebook 01."""

import random
import re

from .judge import Wrong, agree, draws, exercise, vary


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
    same = (a for a, b in zip(steps, steps[1:]) if a == b)
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
        [("user", "\n  two\n"), ("assistant", f" {n + 1} ")],
    ):
        expected, found = chat(t, messages), answer(messages)
        mistakes = [(w, chat(t, messages, **how)) for w, how in CHATS.items()]
        mistakes.append(("a text; expected its ids", t.decode(expected)))
        if decoded(t, found) == t.decode(expected):
            control = set(t.special_tokens.values())
            if control & {*map(int, found)} != control & {*expected}:
                raise Wrong("the names of special tokens became plain text")
            mistakes.append(("right text, cut at other places", found))
        agree(found, expected, mistakes)
    return "headers, line breaks, and no way out for a user's text"


def decoded(t, found):
    """Return the text of a result, or None if it is not a list of ids."""
    try:
        return t.decode(found)
    except (TypeError, ValueError):
        return None
