"""Facts that an archive states. They are drawn at random and identified by a key. Each genre has its own wordings."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import NamedTuple

from nemo_gym import shared_rows
from resources_servers.long_context.phrases import FACTS

# Leave out names with accents, because a city can be the answer and must have only one spelling.
CITIES = [row["city"] for row in shared_rows("cities.jsonl") if row["city"].replace(" ", "").isalpha()]
CITIES = [city for city in CITIES if city.isascii()]
PEOPLE = [f"{row['given_name']} {row['surname']}" for row in shared_rows("names.jsonl")]
SIDES = ("old", "new", "north", "south", "main", "spare")
OBJECTS = (
    "boiler", "pump", "lift", "gate", "turbine", "generator", "crane", "kiln", "printing press", "tower clock",
    "weather station", "radio mast", "cold store", "water tank", "greenhouse", "fire door", "ferry", "loom",
)  # fmt: skip
ATTRIBUTES = ("access code", "serial number", "key number", "meter reading", "licence number", "alarm number")
GOODS = (
    "tea", "coffee", "salt", "rice", "candles", "soap", "oranges", "olives", "nails", "paper", "glass", "wool",
    "tiles", "honey", "cocoa", "pepper", "lemons", "ink", "rope", "corks", "lentils", "apples", "bricks", "buttons",
)  # fmt: skip
STATUSES = ("accepted", "refused", "delayed", "returned")
OCCASIONS = (
    "the summer fair", "the annual meeting", "the chess tournament", "the choir weekend", "the book market",
    "the science week", "the alumni dinner", "the winter games", "the film festival", "the spring regatta",
)  # fmt: skip
ACTIONS = ("reopened", "repainted", "sold", "insured", "repaired", "photographed", "rebuilt", "surveyed")
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""The letters of keys, without I and O, which resemble digits."""
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
FIRST_EVENT, LAST_EVENT = date(1990, 1, 1).toordinal(), date(2019, 12, 31).toordinal()

Key = tuple[str, ...]


class Fact(NamedTuple):
    """One statement. Statements with the same key are about the same thing and may contradict each other."""

    kind: str
    key: Key
    fields: dict[str, str]

    def sentence(self, genre: str, rng: random.Random) -> str:
        """Return the fact in one of the genre's wordings."""
        phrase = rng.choice(FACTS[self.kind][genre])
        return phrase.format(**{"person": rng.choice(PEOPLE), **self.fields})


def reading(thing: str, city: str, attribute: str, value: str) -> Fact:
    fields = {"thing": thing, "city": city, "attribute": attribute, "value": value}
    return Fact("reading", (thing, city), fields)


def filed(key: str, value: str) -> Fact:
    return Fact("file", (key,), {"key": key, "value": value})


def link(dial: str, source: str) -> Fact:
    return Fact("link", (dial,), {"dial": dial, "source": source})


def setting(dial: str, value: str) -> Fact:
    return Fact("setting", (dial,), {"dial": dial, "value": value})


def delivery(order: str, count: int, goods: str, city: str, status: str) -> Fact:
    fields = {"order": order, "count": str(count), "goods": goods, "city": city, "status": status}
    return Fact("delivery", (goods, city), fields)


def wish(occasion: str, person: str, city: str) -> Fact:
    return Fact("wish", (occasion,), {"occasion": occasion, "person": person, "city": city})


def event(thing: str, city: str, action: str, day: int) -> Fact:
    fields = {"thing": thing, "city": city, "action": action, "date": written(day)}
    return Fact("event", (thing, city, action), fields)


def written(day: int) -> str:
    """Format the date of a proleptic Gregorian ordinal, such as `14 March 2019`."""
    on = date.fromordinal(day)
    return f"{on.day} {MONTHS[on.month - 1]} {on.year}"


def a_thing(rng: random.Random) -> str:
    return f"{rng.choice(SIDES)} {rng.choice(OBJECTS)}"


def a_number(rng: random.Random) -> str:
    """Draw a five-digit number."""
    return str(10_000 + int(rng.random() * 90_000))


def a_file_key(rng: random.Random) -> str:
    return f"{rng.choice(LETTERS)}{rng.choice(LETTERS)}-{1_000 + int(rng.random() * 9_000)}"


def a_box(rng: random.Random) -> str:
    return f"{rng.choice(LETTERS)}-{100 + int(rng.random() * 900)}"


def a_dial(rng: random.Random) -> str:
    return f"{rng.choice(LETTERS)}{rng.choice(LETTERS)}{10 + int(rng.random() * 90)}"


def an_occasion(rng: random.Random) -> str:
    return f"{rng.choice(OCCASIONS)} of {2021 + int(rng.random() * 20)}"


def a_count(rng: random.Random) -> int:
    return 11 + int(rng.random() * 980)


def a_day(rng: random.Random) -> int:
    return rng.randint(FIRST_EVENT, LAST_EVENT)


ANY_FACT: tuple[Callable[[random.Random], Fact], ...] = (
    lambda rng: reading(a_thing(rng), rng.choice(CITIES), rng.choice(ATTRIBUTES), a_number(rng)),
    lambda rng: filed(a_file_key(rng), a_box(rng)),
    lambda rng: link(a_dial(rng), a_dial(rng)) if rng.random() < 0.7 else setting(a_dial(rng), a_number(rng)),
    lambda rng: delivery(
        a_number(rng), a_count(rng), rng.choice(GOODS), rng.choice(CITIES), rng.choice(STATUSES)
    ),
    lambda rng: wish(an_occasion(rng), rng.choice(PEOPLE), rng.choice(CITIES)),
    lambda rng: event(a_thing(rng), rng.choice(CITIES), rng.choice(ACTIONS), a_day(rng)),
)  # fmt: skip
"""Functions that each draw a fact of one kind, for the text around the needles."""
