"""Tasks with custom units: unusual money, dozens, conversions and number notations."""

from __future__ import annotations

import random
from typing import NamedTuple

from resources_servers.counterintuitive.drafts import NAMES, Draft, Scenario, ending, place, user

MARKETS = ("At the market of old {city}", "On the fair that {name} runs", "In the board game of {name}'s children")
GOODS = ("a basket", "a lantern", "a fiddle", "a saddle", "a barrel", "a quilt", "a mirror", "a plough")

BAKERIES = ("In {name}'s bakery", "At the egg market in {city}", "In the button factory of {city}")
USUAL_COUNTS = {"dozen": 12, "score": 20, "gross": 144, "pair": 2}
OTHER_COUNTS = {"dozen": (10, 11, 13, 14), "score": (16, 18, 22, 25), "gross": (100, 121, 169), "pair": (3, 4)}


class Conversion(NamedTuple):
    """A unit, the smaller unit into which it is divided, and the factors between them: the usual and unusual ones."""

    large: str
    small: str
    usual: int
    others: tuple[int, ...]


CONVERSIONS = (
    Conversion("hour", "minute", 60, (40, 50, 72, 100)),
    Conversion("kilo", "gram", 1000, (600, 800, 900)),
    Conversion("metre", "centimetre", 100, (80, 90, 120)),
    Conversion("minute", "second", 60, (50, 80, 100)),
    Conversion("litre", "millilitre", 1000, (600, 750, 960)),
    Conversion("week", "day", 7, (5, 6, 8, 10)),
    Conversion("year", "month", 12, (10, 13, 15)),
    Conversion("day", "hour", 24, (20, 25, 30)),
)
SHIPS = (
    "On the star ship of {name}'s novel",
    "In the training camp near {city}",
    "In the workshop that {name} inherited",
    "In the school for clockmakers in {city}",
)

TALLIES = (
    "On the tally sheets of the {city} docks",
    "In the knot records of {name}'s village",
    "On {name}'s loom cards",
)
BASES = {6: "six", 7: "seven", 8: "eight", 9: "nine"}
USUAL_BASE, USUAL_BASE_NAME = 10, "ten"


def money(rng: random.Random, is_twisted: bool) -> Draft:
    florins, pips = (rng.choice((8, 12, 16, 20)), rng.choice((5, 6, 12, 14))) if is_twisted else (10, 10)
    coins = [(rng.randint(1, 9), rng.randint(1, 7), rng.randint(0, 4)) for _ in range(rng.randint(1, 2))]
    bought = list(zip(rng.sample(GOODS, len(coins)), coins, strict=True))
    shown = " and ".join(
        f"{goods} for {crown} {_plural('crown', crown)}, {florin} {_plural('florin', florin)} and "
        f"{pip} {_plural('pip', pip)}"
        for goods, (crown, florin, pip) in bought
    )
    crowns = rng.randint(21, 30)
    is_change = rng.random() < 0.5
    question = (
        f"pays with {crowns} crowns. How many pips is the change" if is_change else "pays. How many pips is that"
    )
    text = (
        f"{place(rng, MARKETS)}, a crown is worth {florins} florins, and a florin is worth {pips} pips.\n\n"
        f"{rng.choice(NAMES)} buys {shown}, and {question}?{ending(rng, 'the number of pips, without the unit')}"
    )

    def total(per_crown: int, per_florin: int) -> int:
        due = sum((crown * per_crown + florin) * per_florin + pip for _, (crown, florin, pip) in bought)
        return crowns * per_crown * per_florin - due if is_change else due

    return Draft([user(text)], f"{total(florins, pips)} pips", f"{total(10, 10)} pips", "number")


def dozen(rng: random.Random, is_twisted: bool) -> Draft:
    words = rng.sample(list(USUAL_COUNTS), 3)
    changed = rng.sample(words, rng.randint(1, 3)) if is_twisted else []
    counts = {word: rng.choice(OTHER_COUNTS[word]) if word in changed else USUAL_COUNTS[word] for word in words}
    ordered = [(word, rng.randint(1, 7)) for word in words[: rng.randint(2, 3)]]
    loose = rng.randint(1, 9)
    glossary = ", ".join(f"a {word} is {count} pieces" for word, count in counts.items())
    shown = ", ".join(f"{times} times a {word}" for word, times in ordered)
    text = (
        f"{place(rng, BAKERIES)}, {glossary}. {rng.choice(NAMES)} orders {shown}, and {loose} single "
        f"{_plural('piece', loose)}.\n\n"
        f"How many pieces is that together?{ending(rng, 'the number of pieces, without a unit')}"
    )
    expected, habitual = (
        sum(each[word] * times for word, times in ordered) + loose for each in (counts, USUAL_COUNTS)
    )
    return Draft([user(text)], f"{expected} pieces", f"{habitual} pieces", "number")


def conversion(rng: random.Random, is_twisted: bool) -> Draft:
    unit = rng.choice(CONVERSIONS)
    factor = rng.choice(unit.others) if is_twisted else unit.usual
    scene = f"{place(rng, SHIPS)}, one {unit.large} has {factor} {unit.small}s"
    if rng.random() < 0.5:
        large, small = rng.randint(2, 30), rng.randint(1, min(factor, unit.usual) - 1)
        question = f"How many {unit.small}s are {large} {unit.large}s and {small} {_plural(unit.small, small)}?"
        expected, habitual = (f"{large * each + small} {unit.small}s" for each in (factor, unit.usual))
        text = f"{scene}.\n\n{question}{ending(rng, f'the number of {unit.small}s, without the unit')}"
        return Draft([user(text)], expected, habitual, "number")
    small = rng.randint(2 * unit.usual, 12 * unit.usual)
    question = f"How many whole {unit.large}s are {small} {unit.small}s, and how many {unit.small}s remain?"
    expected, habitual = (", ".join(map(str, divmod(small, each))) for each in (factor, unit.usual))
    text = f"{scene}.\n\n{question}{ending(rng, 'the two numbers in this order, separated by a comma')}"
    return Draft([user(text)], expected, habitual, "list")


def tally(rng: random.Random, is_twisted: bool) -> Draft:
    base = rng.choice(list(BASES)) if is_twisted else USUAL_BASE
    shown = [_in_base(rng.randint(base, base**3 - 1), base) for _ in range(rng.randint(2, 3))]
    name = BASES.get(base, USUAL_BASE_NAME)
    text = (
        f"{place(rng, TALLIES)}, numbers are written in base {name}: 10 means {name}, and 100 means {name} times "
        f"{name}.\n\nThe sheets show {' and '.join(shown)}. What is their sum, written in the same way?"
        f"{ending(rng, 'the number, written in the same way')}"
    )
    expected = _in_base(sum(int(each, base) for each in shown), base)
    return Draft([user(text)], expected, str(sum(map(int, shown))), "number")


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _in_base(number: int, base: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, base)
        digits = f"{digit}{digits}"
    return digits or "0"


SCENARIOS: tuple[Scenario, ...] = (money, dozen, conversion, tally)
