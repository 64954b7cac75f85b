"""Tasks that redefine words: actions, directions and grades get an unusual meaning."""

from __future__ import annotations

import random
from typing import NamedTuple

from resources_servers.counterintuitive.drafts import (
    CITIES,
    NAMES,
    Draft,
    Scenario,
    ending,
    place,
    shuffled_otherwise,
    user,
)


class Desk(NamedTuple):
    """A team that chooses one of three words, such as `approve`, for each thing that arrives."""

    scene: str
    thing: str
    unit: str
    actions: dict[str, str]
    """The usual meaning of each word."""


DESKS = (
    Desk("At the claims desk in {city}", "claim", "euros",
         {"approve": "pay it", "reject": "return it", "park": "keep it for a week"}),
    Desk("In {name}'s plant nursery", "plant", "centimetres",
         {"keep": "water it", "bin": "throw it away", "trim": "cut it back"}),
    Desk("At the parcel depot of {city}", "parcel", "kilos",
         {"ship": "load it", "hold": "store it", "refuse": "send it back"}),
    Desk("In the letters office of the {city} gazette", "letter", "words",
         {"print": "publish it", "shorten": "cut it", "drop": "shred it"}),
)  # fmt: skip

COMPASS = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
YARDS = (
    "In the radio code of the container yard in {city}",
    "On the hand signals sheet of {name}'s tug boat",
    "In the secret drill of the {city} marching band",
    "On the remote control of the {city} warehouse robot",
)


class Scale(NamedTuple):
    """Four words that grade things."""

    scene: str
    thing: str
    lowest: str
    highest: str
    words: tuple[str, ...]
    """The words in their usual order, starting with the lowest."""
    names: tuple[str, ...]


SCALES = (
    Scale("In the kitchen slang of {name}'s restaurant", "dish", "worst", "best",
          ("awful", "poor", "fine", "splendid"),
          ("lentil soup", "plum cake", "fish pie", "onion tart", "rice pudding", "bean stew", "beetroot salad")),
    Scale("In the guide book of the {city} climbing club", "route", "easiest", "hardest",
          ("gentle", "moderate", "hard", "extreme"),
          ("Crow's Rib", "Long Chimney", "Tin Wall", "Red Slab", "Goat Gully", "Needle Edge", "Moss Ramp")),
    Scale("In the price code of {name}'s antiques stall", "piece", "cheapest", "dearest",
          ("cheap", "fair", "dear", "outrageous"),
          ("oak stool", "brass lamp", "tin clock", "blue vase", "sea chart", "silver spoon", "music box")),
    Scale("In the sky diary of the {city} weather station", "day", "calmest", "windiest",
          ("still", "breezy", "stormy", "wild"),
          ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")),
)  # fmt: skip


def desk(rng: random.Random, is_twisted: bool) -> Draft:
    team = rng.choice(DESKS)
    words, usual = list(team.actions), tuple(team.actions.values())
    meanings = dict(zip(words, shuffled_otherwise(rng, usual, is_twisted=is_twisted), strict=True))
    low = rng.randint(20, 300)
    high = low + rng.randint(20, 400)
    size = rng.choice((rng.randint(1, low), rng.randint(low + 1, high), rng.randint(high + 1, high + 300)))
    small, middle, large = rng.sample(words, 3)
    word = small if size <= low else middle if size <= high else large
    scene = team.scene.format(city=rng.choice(CITIES), name=rng.choice(NAMES))
    glossary = ", ".join(f"'{each}' means '{meaning}'" for each, meaning in meanings.items())
    text = (
        f"{scene}, {glossary}. The instruction for this week: {small} every {team.thing} of up to {low} {team.unit}, "
        f"{large} every {team.thing} above {high} {team.unit}, and {middle} all others.\n\n"
        f"A {team.thing} of {size} {team.unit} arrives from {rng.choice(NAMES)}. What does the team do: "
        f"{', '.join(rng.sample(usual, 3))}?{ending(rng, 'one of these three')}"
    )
    return Draft([user(text)], meanings[word], team.actions[word])


def moves(rng: random.Random, is_twisted: bool) -> Draft:
    meanings = dict(zip(COMPASS, shuffled_otherwise(rng, tuple(COMPASS), is_twisted=is_twisted), strict=True))
    orders = [(rng.choice(list(COMPASS)), rng.randint(1, 12)) for _ in range(rng.randint(3, 6))]
    code = ", ".join(f"'{word}' means {meaning}" for word, meaning in meanings.items())
    text = (
        f"{place(rng, YARDS)}, {code}. Positions are written x, y: a step to the true east adds 1 to x, and a step to "
        "the true north adds 1 to y.\n\n"
        f"From 0, 0 the orders are: {', '.join(f'{word} {steps}' for word, steps in orders)}. "
        f"Which position is reached?{ending(rng, 'the position as x, y, such as 3, -4')}"
    )
    expected, habitual = (
        ", ".join(str(sum(COMPASS[each[word]][axis] * steps for word, steps in orders)) for axis in (0, 1))
        for each in (meanings, {word: word for word in COMPASS})
    )
    return Draft([user(text)], expected, habitual, "list")


def grades(rng: random.Random, is_twisted: bool) -> Draft:
    scale = rng.choice(SCALES)
    order = shuffled_otherwise(rng, scale.words, is_twisted=is_twisted)
    graded = dict(zip(rng.sample(scale.names, 4), rng.sample(scale.words, 4), strict=True))
    scene = scale.scene.format(city=rng.choice(CITIES), name=rng.choice(NAMES))
    notes = "\n".join(f"{name}: {word}" for name, word in graded.items())
    expected, habitual = (sorted(graded, key=lambda name: each.index(graded[name])) for each in (order, scale.words))
    end = rng.choice((scale.lowest, scale.highest, None))
    if end is None:
        question = f"List all four from {scale.lowest} to {scale.highest}."
        what = "the four names, separated by commas"
    else:
        question, what = f"Which {scale.thing} is the {end}?", "its name"
        expected, habitual = ([each[0 if end == scale.lowest else -1]] for each in (expected, habitual))
    text = (
        f"{scene}, the words run from {scale.lowest} to {scale.highest} in this order: {', '.join(order)}.\n\n"
        f"{notes}\n\n{question}{ending(rng, what)}"
    )
    return Draft([user(text)], ", ".join(expected), ", ".join(habitual), "list" if end is None else "text")


SCENARIOS: tuple[Scenario, ...] = (desk, moves, grades)
