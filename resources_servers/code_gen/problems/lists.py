"""Problems about filtering, mapping and reducing lists of integers, and about their windows and pairs."""

from __future__ import annotations

import random
from typing import NamedTuple

from resources_servers.code_gen.problems.problem import INT, NUMBERS, Family, Kind, Problem


class Step(NamedTuple):
    """A part of a pipeline: its wording and its expression."""

    text: str
    code: str


class Finish(NamedTuple):
    """The last step of a pipeline, with the type of its result and with helper code."""

    text: str
    code: str
    gives: Kind = INT
    helper: str = ""


DIGIT_SUM = "sum(map(int, str(abs(n))))"
PRIME = "n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))"
RUN = """\
def longest_run(values, goes_on):
    best = length = 0
    for place, value in enumerate(values):
        length = length + 1 if place and goes_on(values[place - 1], value) else 1
        best = max(best, length)
    return best


"""
MOST_COMMON = """\
def most_common(values):
    return min(values, key=lambda value: (-values.count(value), value), default=0)


"""


def _keep(chance: random.Random) -> Step:
    k, low, odd = chance.randint(2, 7), chance.randint(-20, 40), chance.choice(("even", "odd"))
    remainder = 0 if odd == "even" else 1
    high, digit = low + chance.randint(20, 60), chance.randint(0, 9)
    steps = (
        Step(f"are {odd}", f"n % 2 == {remainder}"),
        Step(f"are divisible by {k}", f"n % {k} == 0"),
        Step(f"are not divisible by {k}", f"n % {k} != 0"),
        Step(f"are greater than {low}", f"n > {low}"),
        Step(f"are less than {high}", f"n < {high}"),
        Step(f"are at least {low} and at most {high}", f"{low} <= n <= {high}"),
        Step(f"are less than {low} or greater than {high}", f"n < {low} or n > {high}"),
        Step(f"have an {odd} sum of digits, ignoring the sign", f"{DIGIT_SUM} % 2 == {remainder}"),
        Step(f"have the digit {digit}", f"'{digit}' in str(n)"),
        Step(f"do not have the digit {digit}", f"'{digit}' not in str(n)"),
        Step(f"are at an {odd} index, counted from 0", f"i % 2 == {remainder}"),
        Step(f"are at an index divisible by {k}, counted from 0", f"i % {k} == 0"),
        Step(
            "differ from the number directly before them (the first number does, too)", "i == 0 or n != numbers[i - 1]"
        ),
        Step("are greater than the number directly before them (the first is not)", "i > 0 and n > numbers[i - 1]"),
        Step("appear exactly once in the list", "numbers.count(n) == 1"),
        Step("appear more than once in the list", "numbers.count(n) > 1"),
        Step("are prime", PRIME),
        Step("are not prime", f"not ({PRIME})"),
    )
    return chance.choice(steps)


def _change(chance: random.Random) -> Step:
    k, m, shift = chance.randint(2, 9), chance.randint(3, 30), chance.randint(-15, 15) or 4
    by = f"increased by {shift}" if shift > 0 else f"decreased by {-shift}"
    steps = (
        Step("its square", "n * n"),
        Step(f"{k} times its value", f"{k} * n"),
        Step("its absolute value", "abs(n)"),
        Step(f"its value {by}", f"n + {shift}"),
        Step(f"the remainder of its square divided by {m}", f"n * n % {m}"),
        Step("the sum of its digits, ignoring the sign", DIGIT_SUM),
        Step("the number of its digits, ignoring the sign", "len(str(abs(n)))"),
        Step("its value times its index among the kept numbers, counted from 1", "n * (j + 1)"),
        Step("its value minus its index among the kept numbers, counted from 0", "n - j"),
        Step("its value with the opposite sign", "-n"),
        Step("its difference from the kept number before it (from 0 for the first)", "n - (kept[j - 1] if j else 0)"),
        Step("the greatest of the kept numbers up to and including it", "max(kept[: j + 1])"),
        Step(f"its distance from {m}", f"abs(n - {m})"),
        Step(f"itself, but {m} if it is greater than {m}", f"min(n, {m})"),
        Step("its digits in reverse order as a number, without the sign", "int(str(abs(n))[::-1])"),
        Step("itself", "n"),
    )
    return chance.choice(steps)


def _finish(chance: random.Random) -> Finish:
    k = chance.randint(2, 4)
    finishes = (
        Finish("their sum", "sum(values)"),
        Finish("the greatest of them, or 0 if there are none", "max(values, default=0)"),
        Finish("the least of them, or 0 if there are none", "min(values, default=0)"),
        Finish("how many different values there are", "len(set(values))"),
        Finish(
            "the greatest minus the least, or 0 if there are none", "max(values, default=0) - min(values, default=0)"
        ),
        Finish("the first minus the second plus the third, and so on", "sum(values[::2]) - sum(values[1::2])"),
        Finish("the sum of the products of neighbours", "sum(a * b for a, b in zip(values, values[1:]))"),
        Finish("the bitwise XOR of their absolute values (0 if there are none)", "xor_all(values)", helper=XOR),
        Finish("them in descending order", "sorted(values, reverse=True)", NUMBERS),
        Finish("them in ascending order, each value once", "sorted(set(values))", NUMBERS),
        Finish("them in reverse order", "values[::-1]", NUMBERS),
        Finish("their running sums", "list(accumulate(values))", NUMBERS, "from itertools import accumulate\n\n\n"),
        Finish(
            f"the sums of consecutive groups of {k} of them (the last group may be smaller)",
            f"[sum(values[at : at + {k}]) for at in range(0, len(values), {k})]",
            NUMBERS,
        ),
        Finish(
            f"the greatest {k} of them in descending order (fewer if there are fewer)",
            f"sorted(values, reverse=True)[:{k}]",
            NUMBERS,
        ),
        Finish(
            "the length of the longest stretch of neighbours in which no value is less than the one before",
            "longest_run(values, lambda before, after: after >= before)",
            helper=RUN,
        ),
        Finish(
            "the length of the longest stretch of equal neighbours",
            "longest_run(values, lambda before, after: after == before)",
            helper=RUN,
        ),
        Finish(
            "the most frequent of them, the least one in a tie, or 0 if there are none",
            "most_common(values)",
            helper=MOST_COMMON,
        ),
        Finish(
            "the number of pairs in which the earlier value is greater than the later one",
            "sum(a > b for at, a in enumerate(values) for b in values[at + 1 :])",
        ),
    )
    return chance.choice(finishes)


XOR = """\
def xor_all(values):
    result = 0
    for value in values:
        result ^= abs(value)
    return result


"""


def pipeline(chance: random.Random) -> Problem:
    """Draw a problem about filtering, mapping and reducing a list."""
    keep, change, finish = _keep(chance), _change(chance), _finish(chance)
    code = f"""\
{finish.helper}def solve_list(numbers):
    kept = [n for i, n in enumerate(numbers) if {keep.code}]
    values = [{change.code} for j, n in enumerate(kept)]
    return {finish.code}
"""
    statement = (
        f"Given the list `numbers`, keep the numbers that {keep.text}. Replace each kept number by {change.text}. "
        f"Return {finish.text}."
    )
    return Problem(
        "solve_list",
        statement,
        [("numbers", NUMBERS)],
        finish.gives,
        code,
        lambda draw: [numbers(draw)],
        [[[]], [[7]]],
    )


def numbers(draw: random.Random, most: int = 14, low: int = -40, high: int = 99) -> list[int]:
    """Return a list of random integers, often with repetitions."""
    count = draw.randint(1, most)
    if draw.random() < 0.4:
        few = [draw.randint(low, high) for _ in range(3)]
        return [draw.choice(few) for _ in range(count)]
    return [draw.randint(low, high) for _ in range(count)]


def windows(chance: random.Random) -> Problem:
    """Draw a problem about measuring each window of a fixed length in a list."""
    size = chance.randint(2, 6)
    what, code = chance.choice(
        (
            ("sum", "sum(window)"),
            ("maximum", "max(window)"),
            ("minimum", "min(window)"),
            ("number of different values", "len(set(window))"),
            ("range (its maximum minus its minimum)", "max(window) - min(window)"),
            ("number of even values", "sum(value % 2 == 0 for value in window)"),
        )
    )
    step = chance.randint(1, 3)
    over = f"the windows that begin at the indices 0, {step}, {2 * step} and so on"
    finish, gives, wrap = chance.choice(
        (
            (f"the {what} of each window, for {over}", NUMBERS, "{}"),
            (f"the greatest {what} among {over}, or 0 if there is no window", INT, "max({}, default=0)"),
            (f"the least {what} among {over}, or 0 if there is no window", INT, "min({}, default=0)"),
            (f"the total of the {what} over {over}", INT, "sum({})"),
        )
    )
    code = f"""\
def measure_windows(numbers):
    starts = range(0, len(numbers) - {size} + 1, {step})
    values = [{code} for window in (numbers[at : at + {size}] for at in starts)]
    return {wrap.format("values")}
"""
    statement = f"A window is {size} neighbouring numbers of the list `numbers`. Return {finish}."
    return Problem(
        "measure_windows",
        statement,
        [("numbers", NUMBERS)],
        gives,
        code,
        lambda draw: [numbers(draw, 20)],
        [[[]], [list(range(size - 1))], [list(range(size))]],
    )


def pairs_with_property(chance: random.Random) -> Problem:
    """Draw a problem about counting the pairs of list elements that have a property."""
    k, m = chance.randint(2, 40), chance.randint(2, 9)
    text, code = chance.choice(
        (
            (f"whose sum is {k}", f"a + b == {k}"),
            (f"whose sum is divisible by {m}", f"(a + b) % {m} == 0"),
            (f"that differ by exactly {m}", f"abs(a - b) == {m}"),
            (f"that differ by at most {m}", f"abs(a - b) <= {m}"),
            (f"whose product is greater than {k * 10}", f"a * b > {k * 10}"),
            (f"whose product is divisible by {m}", f"a * b % {m} == 0"),
        )
    )
    apart = chance.randint(1, 4)
    where = "" if apart == 1 else f" and whose indices differ by at least {apart}"
    code = f"""\
def count_pairs(numbers):
    return sum({code} for i, a in enumerate(numbers) for b in numbers[i + {apart} :])
"""
    statement = f"Return the number of pairs of entries of the list `numbers` {text}{where}. Count each pair once."
    return Problem(
        "count_pairs",
        statement,
        [("numbers", NUMBERS)],
        INT,
        code,
        lambda draw: [numbers(draw, 24, -5, 30)],
        [[[]], [[k]]],
    )


FAMILIES: dict[str, Family] = {"pipeline": pipeline, "windows": windows, "pairs": pairs_with_property}
