"""Tasks that redefine operators: signs with other meanings, another order of calculation, other comparisons."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from resources_servers.counterintuitive.drafts import Draft, Scenario, ending, place, user

Tree = int | tuple[str, "Tree", "Tree"]

CALCULATIONS: dict[str, Callable[[int, int], int]] = {
    "the sum of both": lambda a, b: a + b,
    "the first minus the second": lambda a, b: a - b,
    "the product of both": lambda a, b: a * b,
    "the larger of both": max,
    "the smaller of both": min,
    "how far both are apart, never negative": lambda a, b: abs(a - b),
    "twice the first plus the second": lambda a, b: 2 * a + b,
}
USUAL_SIGNS = {"+": "the sum of both", "-": "the first minus the second", "*": "the product of both"}
LEDGERS = (
    "In the ledger of {name}'s family",
    "In the log of the ferry from {city}",
    "On the counting boards of the mill in {city}",
    "In the score book of the {city} bowls club",
    "On the order slips of {name}'s foundry",
)

MULTIPLY_FIRST = "does multiplications first, then additions and subtractions from left to right"
ORDERS = {
    MULTIPLY_FIRST: ("*", "+-"),
    "does every step strictly from left to right, whatever the sign": ("+-*",),
    "does additions and subtractions first, from left to right, then multiplications": ("+-", "*"),
    "does subtractions first, then additions, then multiplications, each from left to right": ("-", "+", "*"),
    "does additions first, then multiplications, then subtractions, each from left to right": ("+", "*", "-"),
}
MACHINES = (
    "The old adding machine in the harbour office of {city}",
    "The calculator that {name} soldered together",
    "The till of the flea market in {city}",
    "The relay computer in the museum of {city}",
)

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "a is greater than b": lambda a, b: a > b,
    "a is less than b": lambda a, b: a < b,
    "a and b are equal": lambda a, b: a == b,
    "a is at least twice b": lambda a, b: a >= 2 * b,
    "a and b differ by at most 2": lambda a, b: abs(a - b) <= 2,
    "a plus b is even": lambda a, b: (a + b) % 2 == 0,
}
USUAL_COMPARISONS = {">": "a is greater than b", "<": "a is less than b", "=": "a and b are equal"}
SHEETS = (
    "On the check sheets of the {city} depot",
    "In {name}'s bird notebook",
    "On the blackboard of the pottery in {city}",
    "In the rule book of the {city} orienteering club",
)


def ledger(rng: random.Random, is_twisted: bool) -> Draft:
    meanings = _redefined(rng, USUAL_SIGNS, list(CALCULATIONS), is_twisted=is_twisted)
    tree = _drawn_tree(rng, rng.randint(3, 5))
    rules = " ".join(f"a {sign} b is {meaning}." for sign, meaning in meanings.items())
    text = (
        f"{place(rng, LEDGERS)}, the signs mean the following. {rules} Brackets work as everywhere.\n\n"
        f"What is {_written(tree)} there?{ending(rng, 'the number')}"
    )
    return Draft([user(text)], str(_value(tree, meanings)), str(_value(tree, USUAL_SIGNS)), "number")


def precedence(rng: random.Random, is_twisted: bool) -> Draft:
    order = rng.choice([each for each in ORDERS if each != MULTIPLY_FIRST]) if is_twisted else MULTIPLY_FIRST
    numbers = [rng.randint(2, 12) for _ in range(rng.randint(4, 6))]
    signs = ["*", *rng.choices("+-*", k=len(numbers) - 2)]
    rng.shuffle(signs)
    keys = "".join(f" {sign} {number}" for sign, number in zip(signs, numbers[1:], strict=True))
    text = (
        f"{place(rng, MACHINES)} {order}.\n\n"
        f"What does it show for {numbers[0]}{keys}?{ending(rng, 'the number that it shows')}"
    )
    expected, habitual = (_calculated(numbers, signs, ORDERS[each]) for each in (order, MULTIPLY_FIRST))
    return Draft([user(text)], str(expected), str(habitual), "number")


def comparison(rng: random.Random, is_twisted: bool) -> Draft:
    meanings = _redefined(rng, USUAL_COMPARISONS, list(COMPARISONS), is_twisted=is_twisted)
    lines = _lines(rng, meanings, rng.randint(5, 8))
    rules = "; ".join(f"'a {sign} b' says that {meaning}" for sign, meaning in meanings.items())
    shown = "\n".join(f"{a} {sign} {b}" for a, sign, b in lines)
    text = (
        f"{place(rng, SHEETS)}, {rules}.\n\n{shown}\n\n"
        f"How many of these lines are true there?{ending(rng, 'the number of true lines')}"
    )
    expected, habitual = (
        sum(COMPARISONS[each[sign]](a, b) for a, sign, b in lines) for each in (meanings, USUAL_COMPARISONS)
    )
    return Draft([user(text)], str(expected), str(habitual), "number")


def _lines(rng: random.Random, meanings: Mapping[str, str], count: int) -> list[tuple[int, str, int]]:
    """Draw comparisons such that each number of true comparisons, from none to all, is equally likely."""
    lines: list[tuple[int, str, int]] = []
    true = rng.randint(0, count)
    while len(lines) < count:
        a, sign, b = rng.randint(1, 9), rng.choice("><="), rng.randint(1, 9)
        if COMPARISONS[meanings[sign]](a, b) == (len(lines) < true):
            lines.append((a, sign, b))
    return rng.sample(lines, count)


def _redefined(
    rng: random.Random, usual: Mapping[str, str], meanings: list[str], *, is_twisted: bool
) -> dict[str, str]:
    """Return a meaning for each operator sign. If `is_twisted`, at least one sign has an unusual meaning."""
    changed = rng.sample(list(usual), rng.randint(1, len(usual))) if is_twisted else []
    return {
        sign: rng.choice([each for each in meanings if each != meaning]) if sign in changed else meaning
        for sign, meaning in usual.items()
    }


def _drawn_tree(rng: random.Random, leaves: int) -> Tree:
    if leaves == 1:
        return rng.randint(2, 15)
    left = rng.randint(1, leaves - 1)
    return rng.choice("+-*"), _drawn_tree(rng, left), _drawn_tree(rng, leaves - left)


def _written(tree: Tree, *, is_outermost: bool = True) -> str:
    if isinstance(tree, int):
        return str(tree)
    sign, left, right = tree
    text = f"{_written(left, is_outermost=False)} {sign} {_written(right, is_outermost=False)}"
    return text if is_outermost else f"({text})"


def _value(tree: Tree, meanings: Mapping[str, str]) -> int:
    if isinstance(tree, int):
        return tree
    sign, left, right = tree
    return CALCULATIONS[meanings[sign]](_value(left, meanings), _value(right, meanings))


def _calculated(numbers: list[int], signs: list[str], rounds: tuple[str, ...]) -> int:
    """Evaluate an expression without brackets. `rounds` lists the operators by precedence level, highest first."""
    left_signs = list(signs)
    values = list(numbers)
    for due in rounds:
        at = 0
        while at < len(left_signs):
            if left_signs[at] in due:
                combine = CALCULATIONS[USUAL_SIGNS[left_signs.pop(at)]]
                values[at : at + 2] = [combine(values[at], values[at + 1])]
            else:
                at += 1
    return values[0]


SCENARIOS: tuple[Scenario, ...] = (ledger, precedence, comparison)
