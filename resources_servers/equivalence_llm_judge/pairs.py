"""Generate questions whose answers can be phrased in many ways: people, places, times, amounts, sequences, reasons."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nemo_gym import shared_rows

CITIES = shared_rows("cities.jsonl")
NAMES = [row["given_name"] for row in shared_rows("names.jsonl")]
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PLACES = ("museum", "library", "swimming pool", "town hall", "botanical garden", "repair shop", "archive")
INGREDIENTS = {"flour": "g", "milk": "ml", "sugar": "g", "cream": "ml", "rice": "g", "lentils": "g", "stock": "ml"}
ERRANDS = (
    "buys bread", "calls the bank", "waters the plants", "picks up a parcel", "repairs the bicycle", "writes a letter",
    "cleans the stove", "visits a neighbour", "books a train", "feeds the cat",
)  # fmt: skip
TOPICS = (
    "the budget",
    "a new website",
    "the summer party",
    "the lease of the office",
    "a complaint",
    "the exhibition",
)
RELATIONS = (
    ("is the mother of", "is the sister of", "{a} is the mother of {c}"),
    ("is the father of", "is the father of", "{a} is the grandfather of {c}"),
    ("is the sister of", "is the mother of", "{a} is the aunt of {c}"),
    ("is the brother of", "is the father of", "{a} is the uncle of {c}"),
    ("is the daughter of", "is the daughter of", "{a} is the granddaughter of {c}"),
    ("is the son of", "is the brother of", "{a} is the nephew of {c}"),
)
WINDS = ("north", "east", "south", "west")
TURNS = {"to the right": 1, "round to face the other way": 2, "to the left": 3}


class Pair(NamedTuple):
    """A question and its answer in one of many equivalent forms."""

    question: str
    answer: str


def draw_pairs(rng: random.Random) -> Iterator[Pair]:
    """Yield an endless stream of pairs that cycles through all kinds."""
    while True:
        for make in KINDS:
            yield make(rng)


def _meeting(rng: random.Random) -> Pair:
    one, other = rng.sample(NAMES, 2)
    city, day, hour, topic = rng.choice(CITIES)["city"], rng.choice(DAYS), rng.randint(8, 18), rng.choice(TOPICS)
    late = rng.choice(("", f" {one} wrote that {hour - 1}:00 would be too early."))
    text = f"{one} would like to talk to {other} about {topic} next {day} at {hour}:00, in {city}.{late}"
    return Pair(
        f"{text} Who meets whom, where, when, and what for?",
        f"{one} meets {other} in {city} on {day} at {hour}:00 to talk about {topic}",
    )


def _opening(rng: random.Random) -> Pair:
    place, closed = rng.choice(PLACES), rng.sample(DAYS, 2)
    opens, closes = rng.randint(8, 11), rng.randint(15, 20)
    day, hour = rng.choice((*DAYS, *closed)), rng.randint(6, 22)
    question = (
        f"The {place} is open from {opens}:00 to {closes}:00, but not on {closed[0]} and {closed[1]}. "
        f"{rng.choice(NAMES)} arrives on {day} at {hour}:30. Is it open, and if not, why?"
    )
    if day in closed:
        return Pair(question, f"No, it is closed on {day}")
    if hour < opens:
        return Pair(question, f"No, it opens only at {opens}:00")
    return Pair(question, f"No, it closed at {closes}:00" if hour >= closes else "Yes, it is open")


def _recipe(rng: random.Random) -> Pair:
    ingredient = rng.choice(list(INGREDIENTS))
    people, portions = rng.sample((2, 3, 4, 5, 6, 8, 10), 2)
    each = rng.randrange(15, 130, 5)
    unit = INGREDIENTS[ingredient]
    question = (
        f"{rng.choice(NAMES)}'s recipe for {people} people needs {people * each} {unit} of {ingredient}. How much is "
        f"that for {portions} people?"
    )
    return Pair(question, f"{portions * each} {unit} of {ingredient}")


def _family(rng: random.Random) -> Pair:
    a, b, c = rng.sample(NAMES, 3)
    first, second, answer = rng.choice(RELATIONS)
    facts = [f"{a} {first} {b}.", f"{b} {second} {c}."]
    rng.shuffle(facts)
    return Pair(f"{' '.join(facts)} How is {a} related to {c}?", answer.format(a=a, c=c))


def _order(rng: random.Random) -> Pair:
    name, errands = rng.choice(NAMES), rng.sample(ERRANDS, 4)
    one, two, three, four = errands
    facts = [
        f"{name} {two} after {name} {one}.",
        f"{name} {three} after {name} {two}.",
        f"Before anything else, {name} {four}.",
    ]
    rng.shuffle(facts)
    return Pair(
        f"{' '.join(facts)} In which order does {name} do this?",
        f"{name} first {four}, then {one}, then {two} and finally {three}",
    )


def _direction(rng: random.Random) -> Pair:
    start, name = rng.randrange(4), rng.choice(NAMES)
    turns = rng.choices(list(TURNS), k=rng.randint(2, 5))
    end = (start + sum(TURNS[turn] for turn in turns)) % 4
    listed = ", then ".join(turns)
    return Pair(
        f"{name} looks {WINDS[start]} and turns {listed}. In which direction does {name} look now?",
        f"To the {WINDS[end]}",
    )


def _lamp(rng: random.Random) -> Pair:
    city, colours = rng.choice(CITIES)["city"], rng.sample(("red", "green", "blue", "yellow", "white"), 3)
    states = [rng.random() < 0.6 for _ in colours]
    listed = ", ".join(
        f"the {colour} one is {'on' if state else 'off'}" for colour, state in zip(colours, states, strict=True)
    )
    question = f"A lamp in {city} needs three switches to be on. Now {listed}. Does it shine, and if not, why?"
    off = [colour for colour, state in zip(colours, states, strict=True) if not state]
    if not off:
        return Pair(question, "Yes, it shines, because all three switches are on")
    are_off = "switch is" if len(off) == 1 else "switches are"
    return Pair(question, f"No, because the {' and the '.join(off)} {are_off} off")


def _together(rng: random.Random) -> Pair:
    name, other = rng.sample(NAMES, 2)
    cities = rng.sample(CITIES, 4)
    countries = ", ".join(sorted({each["country"] for each in cities}))
    listed = ", ".join(each["city"] for each in cities)
    return Pair(f"{name} shows {other} a list of towns: {listed}. Which countries are they in?", countries)


KINDS: tuple[Callable[[random.Random], Pair], ...] = (
    _meeting, _opening, _recipe, _family, _order, _direction, _lamp, _together
)  # fmt: skip
