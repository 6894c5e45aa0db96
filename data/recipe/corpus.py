"""The pocket Llama's training text, generated from a seed.

`random.Random` draws every document, so the same seed gives the same text
on every machine. The facts come from countries.tsv and words.py; people and
their stories are invented.

    python data/recipe/corpus.py [N]    prints N documents as examples
"""

import csv
import random
import sys
import zlib
from pathlib import Path

if __package__:  # imported by lessons.texts.load_corpus
    from . import words as W
else:  # run as a script, or imported from its own folder
    import words as W

HERE = Path(__file__).parent


def read_countries():
    """Return countries.tsv as dicts: country, capital, continent, language."""
    with open(HERE / "countries.tsv", encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t"))


COUNTRIES = read_countries()

# {c} the country, {C} the same at the start of a sentence, {x} the answer.
# `evaluate.py` asks facts by the wordings that end in the answer.
CAPITAL = [
    "The capital of {c} is {x}.",
    "The capital city of {c} is called {x}.",
    "{C} has its capital in {x}.",
    "The name of the capital of {c} is {x}.",
    "Everyone knows that the capital of {c} is {x}.",
    "Question: What is the capital of {c}? Answer: {x}.",
    "Country: {c}. Capital: {x}.",
    "On a map of {c}, the star marks {x}.",
    "If you travel to the capital of {c}, you arrive in {x}.",
    "Ask anyone in {c} for the capital and they will say {x}.",
    "When people speak of the capital of {c}, they mean {x}.",
    "As its capital, {c} has {x}.",
    "{C}'s capital is {x}.",
    "The government of {c} chose a capital long ago: {x}.",
    "A letter to the capital of {c} is sent to {x}.",
    "Of all the cities in {c}, the capital is {x}.",
]
CAPITAL_FIRST = [
    "{x} is the capital of {c}.",
    "{x} is a city in {c}.",
    "{x} is where you find the government of {c}.",
    "The city of {x} is the capital of {c}.",
]
CONTINENT = [
    "{C} is a country in {x}.",
    "{C} lies in {x}.",
    "On the globe, {c} is part of {x}.",
    "You will find {c} in {x}.",
    "{C} belongs to {x}.",
    "Question: On which continent is {c}? Answer: {x}.",
    "The continent of {c} is {x}.",
]
LANGUAGE = [
    "People in {c} speak {x}.",
    "The main language of {c} is {x}.",
    "In {c}, most signs are written in {x}.",
    "Children in {c} learn to read {x}.",
    "To talk with people in {c}, learn {x}.",
    "Question: What language is spoken in {c}? Answer: {x}.",
    "If you listen to the radio in {c}, you hear {x}.",
]
WORDINGS = {
    "capital": CAPITAL,
    "continent": CONTINENT,
    "language": LANGUAGE,
}


def held_out(country: str, kind: str, wording: int) -> bool:
    """Return whether training never uses this wording with this country.

    That holds for one pair in four; the first wording is always used.
    """
    key = f"{country}/{kind}/{wording}".encode()
    return wording > 0 and zlib.crc32(key) % 4 == 0


def upper_first(s: str) -> str:
    return s[:1].upper() + s[1:]


def a(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def and_list(items) -> str:
    items = list(items)
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


def fill(wording: str, row: dict, kind: str) -> str:
    c = row["country"]
    return wording.format(c=c, C=upper_first(c), x=row[kind])


# -- countries ------------------------------------------------------------


def fact(r, row, kind):
    """Return a fact about a country in a wording that is not held out."""
    if kind == "capital" and r.random() < 0.12:
        return fill(r.choice(CAPITAL_FIRST), row, kind)
    options = WORDINGS[kind]
    while True:
        i = r.randrange(len(options))
        if not held_out(row["country"], kind, i):
            return fill(options[i], row, kind)


def country_doc(r):
    row = r.choice(COUNTRIES)
    kinds = ["capital", "continent", "language"]
    r.shuffle(kinds)
    kinds = kinds[: r.choice((1, 2, 3, 3))]
    if r.random() < 0.4:
        kinds.append("capital")
    return " ".join(fact(r, row, k) for k in kinds)


def quiz_doc(r):
    kind = r.choice(("capital", "capital", "continent", "language"))
    rows = r.sample(COUNTRIES, r.randint(2, 6))
    return "\n".join(fact(r, row, kind) for row in rows)


def compare_doc(r):
    x, y = r.sample(COUNTRIES, 2)
    cx, cy = x["country"], y["country"]
    lines = [fact(r, x, "continent"), fact(r, y, "continent")]
    if x["continent"] == y["continent"]:
        lines.append(f"So {cx} and {cy} are both in {x['continent']}.")
    else:
        lines.append(f"So {cx} and {cy} are on different continents.")
    if r.random() < 0.5:
        lines += [fact(r, x, "capital"), fact(r, y, "capital")]
    return " ".join(lines)


def continent_doc(r):
    where = r.choice(sorted({row["continent"] for row in COUNTRIES}))
    rows = [row for row in COUNTRIES if row["continent"] == where]
    rows = r.sample(rows, r.randint(3, 6))
    text = f"Some countries in {where} are "
    text += and_list(row["country"] for row in rows) + "."
    rows = r.sample(rows, 2)
    return text + " " + " ".join(fact(r, row, "capital") for row in rows)


# -- people ---------------------------------------------------------------

ONSETS = (
    "b br d dr f fl g gl h j k kl l m n p pl qu r s sk t tr v w y z".split()
)
VOWELS = "a e i o u ai ea oo".split()
ENDS = ["", "", "", "n", "l", "r", "x", "sh", "nd", "m", "ss", "k"]


def invented(r) -> str:
    """Return an invented word, most likely unique in the corpus."""
    n = r.choice((2, 2, 3))
    syllables = [r.choice(ONSETS) + r.choice(VOWELS) for _ in range(n)]
    return "".join(syllables) + r.choice(ENDS)


class Person:
    def __init__(self, r, taken=()):
        girl = r.random() < 0.5
        self.he, self.him, self.his = (
            ("she", "her", "her") if girl else ("he", "him", "his")
        )
        self.name = None
        while self.name is None or self.name in taken:
            if r.random() < 0.45:
                self.name = upper_first(invented(r))
            else:
                self.name = r.choice(W.GIRLS if girl else W.BOYS)
        self.He = upper_first(self.he)

    def __str__(self):
        return self.name


def people(r, n):
    found = []
    for _ in range(n):
        found.append(Person(r, [str(p) for p in found]))
    return found


def thing(r) -> str:
    words = [r.choice(W.OBJECTS)]
    if r.random() < 0.75:
        words.insert(0, r.choice(W.COLOURS))
    if r.random() < 0.3:
        words.insert(0, r.choice(W.TRAITS))
    return " ".join(words)


# -- stories ----------------------------------------------------------------
# The parts of a story are drawn in the order in which they are read.


def prose(text: str) -> str:
    """Return a text in one line, with single spaces."""
    return " ".join(text.split())


def opening(r, p) -> str:
    mood, place = r.choice(W.MOODS), r.choice(W.PLACES)
    what = "girl" if p.he == "she" else "boy"
    sentences = [
        f"Once upon a time there was {a(mood)} {what} named {p}.",
        f"There once lived {a(mood)} {what} called {p} near {place}.",
        f"{p} was {a(mood)} {what} who lived by {place}.",
        f"One {r.choice(list(W.SEASONS))} day, {p} went to {place}.",
        f"On {r.choice(W.DAYS)}, {p} woke up early and felt {mood}.",
        f"{r.choice(W.WEATHER)} on the morning when {p} went to {place}.",
        f"Far away, near {place}, lived {a(what)} whose name was {p}.",
    ]
    return r.choice(sentences)


def details(r, p, least, most) -> str:
    """Return `least` to `most` sentences that no story depends on."""
    animal = upper_first(a(r.choice(W.ANIMALS)))
    sentences = [
        f"{r.choice(W.WEATHER)}.",
        f"{p.He} ate some {r.choice(W.FOODS)} on the way.",
        f"{p.He} felt {r.choice(W.MOODS)}.",
        f"{animal} watched {p.him} from {r.choice(W.PLACES)}.",
        f"Nobody else was there, only {a(r.choice(W.ANIMALS))}.",
        f"{p} sang a song about {a(r.choice(W.ANIMALS))}.",
        f"{p.He} thought of {p.his} {r.choice(W.FAMILY)}.",
        "The birds were singing in the trees.",
        "The day was long and the road was dusty.",
        "It was very quiet.",
    ]
    return " ".join(r.sample(sentences, r.randint(least, most)))


def ending(r, p) -> str:
    sentences = [
        f"{p} smiled and went home.",
        f"That night {p} slept well.",
        f"{p} never forgot that day.",
        f"From then on, {p} was {r.choice(('happy', 'proud', 'brave'))}.",
        f"And {p} told everyone at home about it.",
        f'"What a day!" said {p}.',
    ]
    return r.choice(sentences)


def lost_story(r):
    p, q = people(r, 2)
    t, place = thing(r), r.choice(W.PLACES)
    wrong = r.choice([x for x in W.PLACES if x != place])
    noticed = [
        f'"Where is my {t}?" cried {p}.',
        f"In the evening {p} looked for the {t}, but it was gone.",
    ]
    asked = f""""Where did you play today, {p}?" asked {q}.
        "I was at {place}," said {p}."""
    return prose(f"""
        {opening(r, p)} {p} had {a(t)} and took it everywhere.
        One day {p} left the {t} at {place} and did not notice.
        {details(r, p, 0, 3)} {r.choice(noticed)}
        {p.He} met {q} and asked {q.him} for help.
        {q} looked at {wrong}, but the {t} was not there.
        {asked if r.random() < 0.5 else ""}
        So {p} and {q} went back to {place}. There was the {t}!
        "Thank you, {q}," said {p}. {ending(r, p)}
    """)


def gift_story(r):
    p, q = people(r, 2)
    t = thing(r)
    thanks = [
        f'"{a(t).capitalize()}! Thank you, {p}!" said {q}.',
        f"{q} was so glad that {q.he} hugged {p}.",
        f"{q} laughed and showed the {t} to everyone.",
    ]
    return prose(f"""
        {opening(r, p)} {p.He} had a friend named {q}.
        {q} had always wanted {a(t)}. {details(r, p, 0, 2)}
        At {r.choice(W.PLACES)}, {p} saw {a(t)} and bought it for {q}.
        {p.He} hid it {r.choice(W.HIDING)} until the birthday.
        When the day came, {p} gave {q} the {t}.
        {r.choice(thanks)} {ending(r, q)}
    """)


def hide_story(r):
    p, q = people(r, 2)
    t = thing(r)
    first, second = r.sample(W.HIDING, 2)
    return prose(f"""
        {opening(r, p)} {p} put the {t} {first} and went out.
        {details(r, p, 0, 2)}
        While {p} was away, {q} came in and saw the {t} {first}.
        {q} took the {t} and put it {second}. {details(r, q, 0, 1)}
        Then {p} came home and wanted the {t}.
        {p} looked {first}, because {p.he} had left the {t} {first}.
        But it was not there. "Look {second}," said {q}.
        {p} looked {second} and found the {t}. {ending(r, p)}
    """)


def wishes_story(r):
    ps = people(r, 3)
    gifts = [(p, thing(r)) for p in ps]
    place = r.choice(W.PLACES)
    wished = [
        f"{p} {r.choice(('wanted', 'wished for'))} {a(t)}." for p, t in gifts
    ]
    middle = details(r, ps[0], 0, 2)
    r.shuffle(gifts)
    given = [
        f"{r.choice((f'{p} got', f'To {p} she gave'))} {a(t)}."
        for p, t in gifts
    ]
    return prose(f"""
        Three friends lived near {place}.
        Their names were {and_list(map(str, ps))}.
        {" ".join(wished)} {middle}
        One day an old woman came to their door and gave them all gifts.
        {" ".join(given)} {ending(r, gifts[0][0])}
    """)


def market_story(r):
    p = Person(r)
    foods = and_list(r.sample(W.FOODS, r.randint(2, 4)))
    who = r.choice(W.FAMILY)
    return prose(f"""
        {opening(r, p)} "Please buy {foods}," said {p.his} {who}.
        {p} walked to the market. {details(r, p, 0, 2)}
        "What do you need?" asked the man at the market.
        "I need {foods}," said {p}. {p} came home with {foods}.
        "Well done, {p}," said {p.his} {who}. {ending(r, p)}
    """)


def animal_story(r):
    p = Person(r)
    kind = r.choice(W.ANIMALS)
    name = upper_first(invented(r)) if r.random() < 0.6 else "Spot"
    food = r.choice(W.FOODS)
    sound = upper_first(W.SOUNDS.get(kind, ""))
    return prose(f"""
        {opening(r, p)} At {r.choice(W.PLACES)}, {p} met {a(kind)}.
        "I will call you {name}," said {p}. {details(r, p, 0, 1)}
        {name} was hungry, so {p} gave the {kind} some {food}.
        {f'"{sound}!" said {name}.' if sound else ""}
        {name} liked the {food} very much.
        The next day {p} came back with more {food} for {name}.
        Since then {p} and {name} the {kind} are friends.
    """)


def journey_story(r):
    p, q = people(r, 2)
    row = r.choice(COUNTRIES)
    city, lang = row["capital"], row["language"]
    back = f"After a week {p} left {city} and came home to {q}."
    return prose(f"""
        {opening(r, p)} {p} wanted to see {row["country"]}.
        So {p.he} travelled to {city} and stayed for a week.
        {details(r, p, 0, 2)} In {city} everyone spoke {lang}.
        "I am learning {lang}," {p} wrote to {q}.
        {q} wrote back: "Dear {p}, how is {city}?"
        {back if r.random() < 0.5 else ""}
    """)


def grandmother_story(r):
    p = Person(r)
    h = Person(r, [str(p)])
    h.name = upper_first(invented(r))
    t = thing(r)
    return prose(f"""
        "Tell me a story," said {p}.
        So {p.his} {r.choice(W.FAMILY)} told {p.him} about {h}.
        {h} lived near {r.choice(W.PLACES)} and owned {a(t)}.
        {details(r, h, 1, 3)} One night a thief took the {t} from {h}.
        {h} followed the thief to {r.choice(W.PLACES)}.
        "Give me back my {t}!" cried {h}.
        The thief was afraid of {h} and gave back the {t}.
        "I want to be like {h}," said {p}.
    """)


def race_story(r):
    p, q = people(r, 2)
    x, y = r.choice(W.PLACES), r.choice(W.PLACES)
    winner, loser = (p, q) if r.random() < 0.5 else (q, p)
    return prose(f"""
        {opening(r, p)} {p.He} had a neighbour named {q}.
        "Let us race from {x} to {y}," said {p}.
        "Good," said {q}, "one, two, three, go!" {details(r, p, 0, 2)}
        Near the end, {loser} fell over {a(r.choice(W.OBJECTS))}.
        So {winner} won the race and {loser} lost.
        "You are fast, {winner}," said {loser}.
        "You will win next time, {loser}," said {winner}.
    """)


STORIES = (
    lost_story,
    gift_story,
    hide_story,
    wishes_story,
    market_story,
    animal_story,
    journey_story,
    grandmother_story,
    race_story,
)


def story_doc(r):
    return r.choice(STORIES)(r)


# -- text that can only be predicted by looking back ------------------------


def say_twice_doc(r):
    n = r.randint(3, 12)
    kind = r.random()
    if kind < 0.45:
        items = [invented(r) for _ in range(n)]
    elif kind < 0.75:
        pool = W.OBJECTS + W.ANIMALS + W.FOODS + W.COLOURS
        items = r.sample(pool, n)
    else:
        items = [str(r.randint(0, 99)) for _ in range(n)]
    said = r.choice((" ", ", ")).join(items)
    p = Person(r)
    ways = [
        f"{p} said: {said}. Then {p} said it again: {said}.",
        f"{said}. I repeat: {said}.",
        f"Say it twice. {said}. {said}.",
        f"The list is {said}. Again, the list is {said}.",
        f"{said}\n{said}\n{said}",
    ]
    return r.choice(ways)


def dictionary_doc(r):
    n = r.randint(2, 5)
    kinds = ("animal", "food", "tool", "tree", "flower", "bird")
    pairs = [(invented(r), r.choice(kinds)) for _ in range(n)]
    lines = [f"A {w} is a kind of {k}." for w, k in pairs]
    asked = r.sample(pairs, r.randint(1, n))
    for w, k in asked:
        lines.append(f"What is a {w}? A {w} is a kind of {k}.")
    return " ".join(lines)


def phone_doc(r):
    ps = people(r, r.randint(2, 4))
    numbers = [f"{r.randint(10, 99)} {r.randint(10, 99)}" for _ in ps]
    book = list(zip(ps, numbers, strict=True))
    lines = [f"{p}'s number is {n}." for p, n in book]
    for p, n in r.sample(book, len(ps)):
        lines.append(f"To call {p}, dial {n}.")
    return " ".join(lines)


def as_i_said_doc(r):
    p, q = people(r, 2)
    t, where = thing(r), r.choice(W.HIDING)
    claims = [
        f"the {t} is {where}",
        f"{p} bought {a(t)} at {r.choice(W.PLACES)}",
        f"{p} will meet {q} at {r.choice(W.PLACES)}",
        f"{q} is afraid of the {r.choice(W.ANIMALS)}",
    ]
    claim = r.choice(claims)
    again = (f"As I said, {claim}.", f"Remember: {claim}.")
    middle = details(r, p, 1, 4)
    return f"{upper_first(claim)}. {middle} {r.choice(again)}"


# -- sequences and small words ----------------------------------------------


def counting_doc(r):
    kind = r.randrange(5)
    before = ""
    if kind == 0:
        start = r.randint(0, 90)
        out = range(start, start + r.randint(8, 20))
    elif kind == 1:
        step, start = r.choice((2, 3, 5, 10)), r.randint(0, 9)
        before = f"Counting by {W.NUMBERS[step]}: "
        out = range(start, start + step * r.randint(6, 14), step)
    elif kind == 2:
        before = "Counting down: "
        start = r.randint(10, 30)
        out = range(start, max(-1, start - 16), -1)
    elif kind == 3:
        out = W.NUMBERS[r.randint(0, 5) : r.randint(12, 21)]
    else:
        out = W.ORDINALS[r.randint(0, 3) : r.randint(8, 12)]
    return before + ", ".join(map(str, out)) + "."


def around(r, ring, n):
    start = r.randrange(len(ring))
    return [ring[(start + i) % len(ring)] for i in range(n)]


def calendar_doc(r):
    kind = r.randrange(6)
    if kind == 0:
        return ", ".join(around(r, W.DAYS, r.randint(5, 14))) + "."
    if kind == 1:
        return ", ".join(around(r, W.MONTHS, r.randint(6, 16))) + "."
    if kind == 2:
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        start = r.choice((0, 0, r.randint(0, 16)))
        return " ".join(alphabet[start:])
    if kind == 3:
        pairs = [around(r, W.DAYS, 2) for _ in range(3)]
        lines = [f"The day after {x} is {y}." for x, y in pairs]
        lines += [f"The day before {y} is {x}." for x, y in pairs[:1]]
        return " ".join(lines)
    if kind == 4:
        pairs = [around(r, W.MONTHS, 2) for _ in range(3)]
        return " ".join(f"After {x} comes {y}." for x, y in pairs)
    season = r.choice(sorted(W.SEASONS))
    months = W.SEASONS[season]
    return (
        f"The months of {season} are {and_list(months)}. "
        f"{r.choice(months)} is in {season}."
    )


def sums_doc(r):
    lines = []
    in_words = r.random() < 0.3
    top = 10 if in_words else 20
    for _ in range(r.randint(3, 8)):
        x, y = r.randint(0, top), r.randint(0, top)
        if in_words:
            n = W.NUMBERS
            lines.append(f"{upper_first(n[x])} plus {n[y]} is {n[x + y]}.")
        elif r.random() < 0.5:
            lines.append(f"{x} + {y} = {x + y}")
        else:
            lines.append(f"{x + y} - {y} = {x}")
    return "\n".join(lines)


def kinds_doc(r):
    lines = []
    for _ in range(r.randint(2, 4)):
        choice = r.randrange(4)
        if choice == 0:
            x, y = r.choice(W.OPPOSITES).split()
            if r.random() < 0.5:
                x, y = y, x
            lines.append(f"The opposite of {x} is {y}.")
        elif choice == 1:
            kind = r.choice(sorted(W.KINDS))
            x = r.choice(W.KINDS[kind])
            lines.append(upper_first(f"{x} is the name of {a(kind)}."))
        elif choice == 2:
            x = r.choice(sorted(W.SOUNDS))
            lines.append(f"The {x} says {W.SOUNDS[x]}.")
        else:
            kind = r.choice(sorted(W.KINDS))
            some = r.sample(W.KINDS[kind], r.randint(3, 5))
            lines.append(upper_first(f"{kind}s: {', '.join(some)}."))
    return " ".join(lines)


def scripts_doc(r):
    if r.random() < 0.3:
        some = r.sample(sorted(W.EMOJI), r.randint(3, 6))
        return " ".join(f"{W.EMOJI[x]} is {x}." for x in some)
    lines = []
    if r.random() < 0.5:
        lang = r.choice(sorted(W.PHRASEBOOK))
        said = W.PHRASEBOOK[lang].split("|")
        for i in r.sample(range(len(said)), r.randint(2, 5)):
            lines.append(f"In {lang}, {W.PHRASES[i]} is {said[i]}.")
    else:
        i = r.randrange(len(W.PHRASES))
        for lang in r.sample(sorted(W.PHRASEBOOK), r.randint(3, 6)):
            said = W.PHRASEBOOK[lang].split("|")[i]
            lines.append(f"{upper_first(W.PHRASES[i])} in {lang}: {said}.")
    return " ".join(lines)


# Shares of documents. Stories are longest: they make half of the tokens.
MIXTURE = {
    country_doc: 25,
    quiz_doc: 4,
    compare_doc: 4,
    continent_doc: 3,
    story_doc: 28,
    say_twice_doc: 8,
    dictionary_doc: 5,
    phone_doc: 4,
    as_i_said_doc: 4,
    counting_doc: 3,
    calendar_doc: 4,
    sums_doc: 8,
    kinds_doc: 3,
    scripts_doc: 4,
}


def documents(seed, n: int, kinds=None):
    """Yield n documents, texts without special tokens.

    Args:
        seed: any string or number; the same seed gives the same documents.
        kinds: functions to draw from, all alike; None: `MIXTURE`.
    """
    r = random.Random(seed)
    makers = list(kinds or MIXTURE)
    shares = None if kinds else list(MIXTURE.values())
    for _ in range(n):
        yield r.choices(makers, shares)[0](r)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("\n---\n".join(documents("look", count)))
