"""Tasks with inverted formats: swapped boxes, planted mistakes, reversed lists, columns under the wrong heading."""

from __future__ import annotations

import random
from typing import NamedTuple

from resources_servers.counterintuitive.drafts import NAMES, Draft, Scenario, ending, listed, place, user

WORDS = (
    "anchor", "basket", "button", "candle", "carpet", "cellar", "copper", "cotton", "curtain", "dinner", "dragon",
    "engine", "fabric", "feather", "garden", "ginger", "hammer", "harbour", "insect", "jacket", "kitchen", "ladder",
    "lantern", "mirror", "mountain", "needle", "orange", "oyster", "pepper", "pillow", "planet", "pocket", "puzzle",
    "rabbit", "ribbon", "saddle", "shadow", "silver", "spider", "tunnel", "turnip", "velvet", "violin", "wallet",
    "whistle", "window", "winter", "yellow",
)  # fmt: skip

READERS = (
    "A card reader in the town hall of {city} reads the answers",
    "{name}'s punched-tape machine reads the answers",
    "The answers go to an old scanner in {city}",
)
WIRED_WRONG = "; two of its wires are swapped, so we swap the words, too"
WIRED_RIGHT = "; its wires were checked yesterday, so we write what we mean"

QUIZZES = (
    "{name} collects mistakes for a quiz in which players must find the error.",
    "The proofreaders' course in {city} needs sheets with known mistakes.",
    "The fraud team in {city} plants marked mistakes in its files, to see who copies from them.",
)
MARKS = ("(wrong)", "(false)", "(planted)", "(mistake)")

TAPES = (
    "a label printer in {city}",
    "the ticker tape of {name}'s shop window",
    "the departure board of {city}",
)


class Register(NamedTuple):
    """A form with two columns."""

    thing: str
    measure: str
    unit: str
    most: str
    least: str


REGISTERS = (
    Register("Box", "Weight", "kilos", "heaviest", "lightest"),
    Register("Boat", "Length", "feet", "longest", "shortest"),
    Register("Tower", "Height", "metres", "tallest", "lowest"),
    Register("Melon", "Price", "cents", "dearest", "cheapest"),
)
OFFICES = ("the harbour office of {city}", "the archive of {city}", "{name}'s auction house", "the {city} county fair")


def swapped_boxes(rng: random.Random, is_twisted: bool) -> Draft:
    yes, no = rng.choice((("yes", "no"), ("true", "false"), ("right", "wrong")))
    asked = [rng.choice((_larger, _divisible, _before, _contains))(rng) for _ in range(rng.randint(3, 5))]
    reason = WIRED_WRONG if is_twisted else WIRED_RIGHT
    for_true, for_false = (no, yes) if is_twisted else (yes, no)
    shown = "\n".join(f"{number}. {statement}." for number, (statement, _) in enumerate(asked, start=1))
    text = (
        f"{place(rng, READERS)}{reason}. Write '{for_true}' for a statement that holds, and '{for_false}' for one "
        f"that does not.\n\n{shown}{ending(rng, 'your words for all statements in this order, separated by commas')}"
    )
    expected = ", ".join(for_true if holds else for_false for _, holds in asked)
    habitual = ", ".join(yes if holds else no for _, holds in asked)
    return Draft([user(text)], expected, habitual, "list")


def planted_mistake(rng: random.Random, is_twisted: bool) -> Draft:
    question, right = rng.choice((_sum, _minutes, _letters))(rng)
    if is_twisted:
        error, mark, way = rng.randint(1, 9), rng.choice(MARKS), rng.choice(("large", "small"))
        order = f"We need a result that is too {way} by exactly {error}: give it, and mark it with '{mark}'"
        expected, habitual = f"{right + error if way == 'large' else right - error} {mark}", str(right)
    else:
        mark = "(correct)"
        order = f"This time we need a correct result for comparison: give it, and mark it with '{mark}'"
        expected = habitual = f"{right} {mark}"
    what = f"the number and the mark, such as '100 {mark}'"
    text = f"{place(rng, QUIZZES)} {order}.\n\n{question}{ending(rng, what)}"
    return Draft([user(text)], expected, habitual)


def tape(rng: random.Random, is_twisted: bool) -> Draft:
    count = rng.randint(4, 6)
    if rng.random() < 0.5:
        ordered = sorted(rng.sample(WORDS, count))
        order, first, last = "alphabetical order", "first", "last"
    else:
        ordered = [str(number) for number in sorted(rng.sample(range(10, 999), count))]
        order, first, last = "order of size", "smallest", "largest"
    if is_twisted:
        way = f"It feeds from the end, so write the {last} one at the beginning and the {first} one at the end"
    else:
        way = f"It feeds from the beginning, so write the {first} one at the beginning and the {last} one at the end"
    text = (
        f"Bring these into {order} for {place(rng, TAPES)}. {way}.\n\n{', '.join(rng.sample(ordered, count))}"
        f"{ending(rng, 'the items in the order in which you write them, separated by commas')}"
    )
    return Draft([user(text)], ", ".join(ordered[::-1] if is_twisted else ordered), ", ".join(ordered), "list")


def columns(rng: random.Random, is_twisted: bool) -> Draft:
    kind = rng.choice(REGISTERS)
    values = dict(zip(rng.sample("ABCDEFGHJK", 5), rng.sample(range(12, 480), 5), strict=True))
    wanted = rng.choice((kind.most, kind.least))
    label = (max if wanted == kind.most else min)(values, key=lambda each: values[each])
    label_column, value_column = kind.thing, kind.measure
    if is_twisted:
        note = f"The printer exchanged the headings: what belongs under '{kind.thing}' goes under '{kind.measure}'"
        note += f", and what belongs under '{kind.measure}' goes under '{kind.thing}'"
        label_column, value_column = value_column, label_column
    else:
        note = f"The headings are as they should be: '{kind.thing}' is for its letter, '{kind.measure}' for the number"
    shown = ", ".join(f"{kind.thing.lower()} {each}: {value} {kind.unit}" for each, value in values.items())
    text = (
        f"The form of {place(rng, OFFICES)} has two columns, first '{kind.thing}', then '{kind.measure}'. {note}.\n\n"
        f"{shown[0].upper()}{shown[1:]}.\n\nFill in the line for the {wanted} {kind.thing.lower()}."
        f"{ending(rng, 'the two entries in this order, without words or units, separated by a comma')}"
    )
    cells = {label_column: label, value_column: str(values[label])}
    expected = ", ".join(cells[heading] for heading in (kind.thing, kind.measure))
    return Draft([user(text)], expected, f"{label}, {values[label]}", "list")


Statement = tuple[str, bool]
"""A statement, and whether it holds."""


def _larger(rng: random.Random) -> Statement:
    a, b = rng.sample(range(100, 999), 2)
    return f"{a} is larger than {b}", a > b


def _divisible(rng: random.Random) -> Statement:
    divisor = rng.randint(3, 9)
    number = divisor * rng.randint(5, 40) + rng.choice((0, 1))
    return f"{number} can be divided by {divisor} without a remainder", number % divisor == 0


def _before(rng: random.Random) -> Statement:
    a, b = rng.sample(WORDS, 2)
    return f"The word '{a}' comes before '{b}' in a dictionary", a < b


def _contains(rng: random.Random) -> Statement:
    word, letter = rng.choice(WORDS), rng.choice("aeinorst")
    return f"The word '{word}' has the letter '{letter}'", letter in word


Question = tuple[str, int]
"""A question, and its correct answer."""


def _sum(rng: random.Random) -> Question:
    numbers = [rng.randint(11, 250) for _ in range(3)]
    return f"{rng.choice(NAMES)} adds {listed([str(each) for each in numbers])}. What is the sum?", sum(numbers)


def _minutes(rng: random.Random) -> Question:
    hours, minutes = rng.randint(2, 15), rng.randint(1, 59)
    return f"How many minutes are {hours} hours and {minutes} minutes?", 60 * hours + minutes


def _letters(rng: random.Random) -> Question:
    words = rng.sample(WORDS, 3)
    return f"How many letters do the words {listed(words)} have together?", sum(map(len, words))


SCENARIOS: tuple[Scenario, ...] = (swapped_boxes, planted_mistake, tape, columns)
