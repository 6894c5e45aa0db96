"""A formula of MathML as one line of text, such as softmax(QKᵀ/√hd)."""

import re
import unicodedata

SMALL = {"<super>": {"⊤": "ᵀ", "′": "′", "″": "″"}, "<sub>": {}}
for code in range(0x2C80):  # what fonts have: Unicode's small letters
    kind, _, letter = unicodedata.decomposition(chr(code)).partition(" ")
    if kind in SMALL and " " not in letter:
        SMALL[kind][chr(int(letter, 16))] = chr(code)
ACCENTS = {"^": "\u0302", "~": "\u0303", "¯": "\u0304"}
BETWEEN = "=≠≈<>≤≥+−·×⊙→←∈"  # these have spaces around them


def plain(element) -> str:
    """Return an element's text, with Unicode's small letters for scripts."""
    kind = element.tag.rpartition("}")[2]
    parts = [plain(child) for child in element]
    text = re.sub(r"\s+", " ", element.text or "")
    if kind == "mfrac":
        text = " {}/{} ".format(*map(bracketed, parts))
    elif kind in ("msqrt", "mroot"):
        text = f"√{bracketed(''.join(parts[:1]))}"
    elif kind in ("mover", "munder", "msub", "msup"):
        text = attached(*parts, above=kind in ("mover", "msup"))
    elif kind in ("msubsup", "munderover"):
        text = attached(attached(*parts[:2], above=False), parts[2])
    elif kind == "mspace":
        text = " "
    elif kind == "mo":
        infix = text in BETWEEN and element.get("form") != "prefix"
        text = f" {text} " if infix else text.replace(",", ", ")
    elif parts:
        text = {"mtable": "; ", "mtr": " "}.get(kind, "").join(parts)
    if element.get("class") == "overline":
        text = f"mean({text})"
    return re.sub(r"(?<=[(\[{⌊⌈/ ]) +| +(?=[)\],;⌋⌉])", "", text)


def attached(base: str, script: str, above=True) -> str:
    """Return a base with what is above or below it."""
    base, script = base.strip(), script.strip()
    if above and script in ACCENTS:
        return base + ACCENTS[script]
    if script == "⏟":
        return base + script
    if base.endswith("⏟"):  # which the script names
        return f"{base[:-1]} ({script})"
    script = re.sub(rf"\s*([,/{BETWEEN}])\s*", r"\1", script)
    small = SMALL["<super>" if above else "<sub>"]
    if re.search("[A-Za-z]{3}", script) or not {*script} <= {*small}:
        plain_script = re.fullmatch(r"[^\W_]+|\(.*\)", script)
        script = script if plain_script else f"({script})"
        script = ("^" if above else "_") + script
    else:
        script = "".join(small[letter] for letter in script)
    if above and base.startswith("√"):
        base = f"({base})"
    space = " " if base.startswith("∑") else ""
    return f"{space}{base}{script}{space}"


def bracketed(text: str) -> str:
    """Return a text, in brackets if it would fall apart without them."""
    left = text = text.strip()
    while left != (left := re.sub(r"\([^()]*\)", "", left)):
        pass
    return f"({text})" if re.search(r"[\s/]", left) else text
