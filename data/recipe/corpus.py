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
    return "".join(r.choice(ONSETS) + r.choice(VOWELS) for _ in range(n)) + (
        r.choice(ENDS)
    )


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


def opening(r, p) -> str:
    mood, place = r.choice(W.MOODS), r.choice(W.PLACES)
    what = "girl" if p.he == "she" else "boy"
    return r.choice(
        [
            f"Once upon a time there was {a(mood)} {what} named {p}.",
            f"There once lived {a(mood)} {what} called {p} near {place}.",
            f"{p} was {a(mood)} {what} who lived by {place}.",
            f"One {r.choice(list(W.SEASONS))} day, {p} went to {place}.",
            f"On {r.choice(W.DAYS)}, {p} woke up early and felt {mood}.",
            f"{r.choice(W.WEATHER)} on the morning when {p} went to {place}.",
            f"Far away, near {place}, lived {a(what)} whose name was {p}.",
        ]
    )


def details(r, p, least, most) -> list[str]:
    """Return `least` to `most` sentences that no story depends on."""
    animal = upper_first(a(r.choice(W.ANIMALS)))
    return r.sample(
        [
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
        ],
        r.randint(least, most),
    )


def ending(r, p) -> str:
    return r.choice(
        [
            f"{p} smiled and went home.",
            f"That night {p} slept well.",
            f"{p} never forgot that day.",
            f"From then on, {p} was {r.choice(('happy', 'proud', 'brave'))}.",
            f"And {p} told everyone at home about it.",
            f'"What a day!" said {p}.',
        ]
    )


def lost_story(r):
    p, q = people(r, 2)
    t, place = thing(r), r.choice(W.PLACES)
    wrong = r.choice([x for x in W.PLACES if x != place])
    s = [opening(r, p), f"{p} had {a(t)} and took it everywhere."]
    s.append(f"One day {p} left the {t} at {place} and did not notice.")
    s += details(r, p, 0, 3)
    s.append(
        r.choice(
            [
                f'"Where is my {t}?" cried {p}.',
                f"In the evening {p} looked for the {t}, but it was gone.",
            ]
        )
    )
    s.append(f"{p.He} met {q} and asked {q.him} for help.")
    s.append(f"{q} looked at {wrong}, but the {t} was not there.")
    if r.random() < 0.5:
        s.append(f'"Where did you play today, {p}?" asked {q}.')
        s.append(f'"I was at {place}," said {p}.')
    s.append(f"So {p} and {q} went back to {place}.")
    s.append(f"There was the {t}!")
    s.append(f'"Thank you, {q}," said {p}. ' + ending(r, p))
    return " ".join(s)


def gift_story(r):
    p, q = people(r, 2)
    t = thing(r)
    s = [opening(r, p), f"{p.He} had a friend named {q}."]
    s.append(f"{q} had always wanted {a(t)}.")
    s += details(r, p, 0, 2)
    where = r.choice(W.PLACES)
    s.append(f"At {where}, {p} saw {a(t)} and bought it for {q}.")
    s.append(f"{p.He} hid it {r.choice(W.HIDING)} until the birthday.")
    s.append(f"When the day came, {p} gave {q} the {t}.")
    s.append(
        r.choice(
            [
                f'"{a(t).capitalize()}! Thank you, {p}!" said {q}.',
                f"{q} was so glad that {q.he} hugged {p}.",
                f"{q} laughed and showed the {t} to everyone.",
            ]
        )
    )
    s.append(ending(r, q))
    return " ".join(s)


def hide_story(r):
    p, q = people(r, 2)
    t = thing(r)
    first, second = r.sample(W.HIDING, 2)
    s = [opening(r, p), f"{p} put the {t} {first} and went out."]
    s += details(r, p, 0, 2)
    s.append(f"While {p} was away, {q} came in and saw the {t} {first}.")
    s.append(f"{q} took the {t} and put it {second}.")
    s += details(r, q, 0, 1)
    s.append(f"Then {p} came home and wanted the {t}.")
    s.append(f"{p} looked {first}, because {p.he} had left the {t} {first}.")
    s.append(f'But it was not there. "Look {second}," said {q}.')
    s.append(f"{p} looked {second} and found the {t}. " + ending(r, p))
    return " ".join(s)


def wishes_story(r):
    ps = people(r, 3)
    ts = [thing(r) for _ in ps]
    s = ["Three friends lived near " + r.choice(W.PLACES) + "."]
    s.append(f"Their names were {and_list(map(str, ps))}.")
    order = list(zip(ps, ts))
    for p, t in order:
        s.append(r.choice([f"{p} wanted {a(t)}.", f"{p} wished for {a(t)}."]))
    s += details(r, ps[0], 0, 2)
    s.append(
        "One day an old woman came to their door and gave them all gifts."
    )
    r.shuffle(order)
    s += [
        r.choice([f"{p} got {a(t)}.", f"To {p} she gave {a(t)}."])
        for p, t in order
    ]
    s.append(ending(r, order[0][0]))
    return " ".join(s)


def market_story(r):
    p = Person(r)
    foods = r.sample(W.FOODS, r.randint(2, 4))
    who = r.choice(W.FAMILY)
    s = [opening(r, p)]
    s.append(f'"Please buy {and_list(foods)}," said {p.his} {who}.')
    s.append(f"{p} walked to the market.")
    s += details(r, p, 0, 2)
    s.append('"What do you need?" asked the man at the market.')
    s.append(f'"I need {and_list(foods)}," said {p}.')
    s.append(f"{p} came home with {and_list(foods)}.")
    s.append(f'"Well done, {p}," said {p.his} {who}. ' + ending(r, p))
    return " ".join(s)


def animal_story(r):
    p = Person(r)
    kind = r.choice(W.ANIMALS)
    name = upper_first(invented(r)) if r.random() < 0.6 else "Spot"
    food = r.choice(W.FOODS)
    s = [opening(r, p), f"At {r.choice(W.PLACES)}, {p} met {a(kind)}."]
    s.append(f'"I will call you {name}," said {p}.')
    s += details(r, p, 0, 1)
    s.append(f"{name} was hungry, so {p} gave the {kind} some {food}.")
    if kind in W.SOUNDS:
        s.append(f'"{upper_first(W.SOUNDS[kind])}!" said {name}.')
    s.append(f"{name} liked the {food} very much.")
    s.append(f"The next day {p} came back with more {food} for {name}.")
    s.append(f"Since then {p} and {name} the {kind} are friends.")
    return " ".join(s)


def journey_story(r):
    p, q = people(r, 2)
    row = r.choice(COUNTRIES)
    city, lang = row["capital"], row["language"]
    s = [opening(r, p)]
    s.append(f"{p} wanted to see {row['country']}.")
    s.append(f"So {p.he} travelled to {city} and stayed for a week.")
    s += details(r, p, 0, 2)
    s.append(f"In {city} everyone spoke {lang}.")
    s.append(f'"I am learning {lang}," {p} wrote to {q}.')
    s.append(f'{q} wrote back: "Dear {p}, how is {city}?"')
    if r.random() < 0.5:
        s.append(f"After a week {p} left {city} and came home to {q}.")
    return " ".join(s)


def grandmother_story(r):
    p = Person(r)
    h = Person(r, [str(p)])
    h.name = upper_first(invented(r))
    t = thing(r)
    who = r.choice(W.FAMILY)
    s = [f'"Tell me a story," said {p}.']
    s.append(f"So {p.his} {who} told {p.him} about {h}.")
    s.append(f"{h} lived near {r.choice(W.PLACES)} and owned {a(t)}.")
    s += details(r, h, 1, 3)
    s.append(f"One night a thief took the {t} from {h}.")
    s.append(f"{h} followed the thief to {r.choice(W.PLACES)}.")
    s.append(f'"Give me back my {t}!" cried {h}.')
    s.append(f"The thief was afraid of {h} and gave back the {t}.")
    s.append(f'"I want to be like {h}," said {p}.')
    return " ".join(s)


def race_story(r):
    p, q = people(r, 2)
    x, y = r.choice(W.PLACES), r.choice(W.PLACES)
    winner, loser = (p, q) if r.random() < 0.5 else (q, p)
    s = [opening(r, p), f"{p.He} had a neighbour named {q}."]
    s.append(f'"Let us race from {x} to {y}," said {p}.')
    s.append(f'"Good," said {q}, "one, two, three, go!"')
    s += details(r, p, 0, 2)
    s.append(f"Near the end, {loser} fell over {a(r.choice(W.OBJECTS))}.")
    s.append(f"So {winner} won the race and {loser} lost.")
    s.append(f'"You are fast, {winner}," said {loser}.')
    s.append(f'"You will win next time, {loser}," said {winner}.')
    return " ".join(s)


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
    return r.choice(
        [
            f"{p} said: {said}. Then {p} said it again: {said}.",
            f"{said}. I repeat: {said}.",
            f"Say it twice. {said}. {said}.",
            f"The list is {said}. Again, the list is {said}.",
            f"{said}\n{said}\n{said}",
        ]
    )


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
    lines = [f"{p}'s number is {n}." for p, n in zip(ps, numbers)]
    for p, n in r.sample(list(zip(ps, numbers)), len(ps)):
        lines.append(f"To call {p}, dial {n}.")
    return " ".join(lines)


def as_i_said_doc(r):
    p, q = people(r, 2)
    t, where = thing(r), r.choice(W.HIDING)
    claim = r.choice(
        [
            f"the {t} is {where}",
            f"{p} bought {a(t)} at {r.choice(W.PLACES)}",
            f"{p} will meet {q} at {r.choice(W.PLACES)}",
            f"{q} is afraid of the {r.choice(W.ANIMALS)}",
        ]
    )
    s = [upper_first(claim) + "."]
    s += details(r, p, 1, 4)
    s.append(r.choice((f"As I said, {claim}.", f"Remember: {claim}.")))
    return " ".join(s)


# -- sequences and small words ----------------------------------------------


def counting_doc(r):
    kind = r.randrange(5)
    if kind == 0:
        start = r.randint(0, 90)
        out = [str(i) for i in range(start, start + r.randint(8, 20))]
    elif kind == 1:
        step, start = r.choice((2, 3, 5, 10)), r.randint(0, 9)
        step_end = start + step * r.randint(6, 14)
        out = [str(i) for i in range(start, step_end, step)]
        return f"Counting by {W.NUMBERS[step]}: " + ", ".join(out) + "."
    elif kind == 2:
        start = r.randint(10, 30)
        out = [str(i) for i in range(start, max(-1, start - 16), -1)]
        return "Counting down: " + ", ".join(out) + "."
    elif kind == 3:
        out = W.NUMBERS[r.randint(0, 5) : r.randint(12, 21)]
    else:
        out = W.ORDINALS[r.randint(0, 3) : r.randint(8, 12)]
    return ", ".join(out) + "."


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
