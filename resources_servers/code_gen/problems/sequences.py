"""Problems that need an algorithm: dynamic programming, intervals, greedy choices and searches."""

from __future__ import annotations

import random
from typing import NamedTuple

from resources_servers.code_gen.problems.lists import numbers
from resources_servers.code_gen.problems.problem import INT, NUMBERS, TABLE, TEXT, Family, Kind, Problem


def coins(chance: random.Random) -> Problem:
    """Draw a problem about paying amounts with given coins."""
    values = sorted(chance.sample(range(1, 25), chance.randint(2, 4)))
    if chance.random() < 0.5:
        modulus = chance.choice((1000, 9973, 1_000_007))
        statement = (
            f"There are coins of {values}, each as often as needed. Return the number of ways to pay exactly "
            f"`amount`, "
            f"as the remainder when divided by {modulus}. The order of the coins does not matter. There is one "
            f"way to pay 0."
        )
        code = f"""\
def pay(amount):
    ways = [1] + [0] * amount
    for coin in {values}:
        for total in range(coin, amount + 1):
            ways[total] = (ways[total] + ways[total - coin]) % {modulus}
    return ways[amount]
"""
    else:
        statement = (
            f"There are coins of {values}, each as often as needed. Return the lowest number of coins that pay "
            f"exactly "
            "`amount`, or -1 if it is impossible."
        )
        code = f"""\
def pay(amount):
    fewest = [0]
    for total in range(1, amount + 1):
        options = [fewest[total - coin] for coin in {values} if coin <= total and fewest[total - coin] >= 0]
        fewest.append(1 + min(options) if options else -1)
    return fewest[amount]
"""
    edges = [[0], [1], [values[0]], [sum(values)], [1000]]
    return Problem("pay", statement, [("amount", INT)], INT, code, lambda draw: [draw.randint(0, 300)], edges)


def spaced_choice(chance: random.Random) -> Problem:
    """Draw a problem about choosing numbers that are far enough apart."""
    gap, price, most = chance.randint(2, 5), chance.randint(0, 9), chance.choice((None, 2, 3))
    cost = f" Each chosen number costs {price}, which is subtracted." if price else ""
    bound = f" At most {most} numbers may be chosen." if most else ""
    code = f"""\
def best_total(numbers):
    layers = {most or "len(numbers)"}
    best = [0] * (len(numbers) + {gap})
    for _ in range(layers):
        after = [0] * (len(numbers) + {gap})
        for at in range(len(numbers) - 1, -1, -1):
            after[at] = max(after[at + 1], numbers[at] - {price} + best[at + {gap}])
        best = after
    return best[0]
"""
    statement = (
        f"Choose any of `numbers` so that the indices of two chosen ones differ by at least {gap}. The value "
        f"of a choice "
        f"is the sum of the chosen numbers; choosing none has the value 0.{cost}{bound} Return the greatest value."
    )
    return Problem(
        "best_total",
        statement,
        [("numbers", NUMBERS)],
        INT,
        code,
        lambda draw: [numbers(draw, 14, -20, 40)],
        [[[]], [[-5]], [[9] * 7]],
    )


def chains(chance: random.Random) -> Problem:
    """Draw a problem about the longest subsequence with a property, or the greatest sum of such a subsequence."""
    k, m = chance.randint(1, 12), chance.randint(2, 7)
    text, code_of = chance.choice(
        (
            (f"each number is greater than the one before by at least {k}", f"b - a >= {k}"),
            (f"two numbers in a row differ by at most {k}", f"abs(b - a) <= {k}"),
            (f"the sum of two numbers in a row is divisible by {m}", f"(a + b) % {m} == 0"),
            (f"two numbers in a row differ by more than {k}", f"abs(b - a) > {k}"),
            (f"each number is less than the one before by at most {k}", f"0 < a - b <= {k}"),
            (
                f"each number is greater than the one before, and their difference is divisible by {m}",
                f"b > a and (b - a) % {m} == 0",
            ),
        )
    )
    is_sum = chance.random() < 0.4
    what = (
        "the greatest sum of such a subsequence that is not empty (0 if `numbers` is empty)"
        if is_sum
        else "the length of the longest one"
    )
    code = f"""\
def longest_chain(numbers):
    best = []
    for at, b in enumerate(numbers):
        before = [best[i] for i, a in enumerate(numbers[:at]) if {code_of}]
        best.append({"b + max([0, *before])" if is_sum else "1 + max(before, default=0)"})
    return max(best, default=0)
"""
    statement = (
        f"A subsequence of `numbers` keeps some of the numbers in their order. Consider those in which {text}. "
        f"A single "
        f"number is such a subsequence. Return {what}."
    )
    edges = [[[]], [[3]], [[1, 2, 3, 4, 5, 6]]]
    return Problem(
        "longest_chain",
        statement,
        [("numbers", NUMBERS)],
        INT,
        code,
        lambda draw: [numbers(draw, 16, -10, 40)],
        edges,
    )


def stretches(chance: random.Random) -> Problem:
    """Draw a problem about counting or measuring contiguous parts of a list."""
    k, m, few = chance.randint(5, 60), chance.randint(2, 9), chance.randint(1, 4)
    text, condition = chance.choice(
        (
            (f"whose sum is divisible by {m}", f"sum(part) % {m} == 0"),
            (f"whose sum is at most {k}", f"sum(part) <= {k}"),
            (f"whose sum is exactly {k}", f"sum(part) == {k}"),
            (f"that have at most {few} different numbers", f"len(set(part)) <= {few}"),
            (f"whose greatest and least number differ by at most {m}", f"max(part) - min(part) <= {m}"),
            ("that do not have a number twice", "len(set(part)) == len(part)"),
            (f"that begin and end with numbers that differ by at most {few}", f"abs(part[0] - part[-1]) <= {few}"),
        )
    )
    finish, result = chance.choice(
        (
            ("how many there are", "len(found)"),
            ("the length of the longest one, or 0 if there are none", "max(map(len, found), default=0)"),
            ("the greatest sum of one of them, or 0 if there are none", "max(map(sum, found), default=0)"),
        )
    )
    code = f"""\
def examine(numbers):
    parts = [numbers[i:j] for i in range(len(numbers)) for j in range(i + 1, len(numbers) + 1)]
    found = [part for part in parts if {condition}]
    return {result}
"""
    statement = (
        f"Consider the stretches of neighbouring entries of `numbers` {text}. A stretch has at least one "
        f"entry; stretches "
        f"at different places are different. Return {finish}."
    )
    return Problem(
        "examine",
        statement,
        [("numbers", NUMBERS)],
        INT,
        code,
        lambda draw: [numbers(draw, 16, 0, draw.choice((5, 30)))],
        [[[]], [[k]], [[1] * 8]],
    )


class Task(NamedTuple):
    """A task about bookings: its wording, the type of its result, and the body of the reference solution."""

    text: str
    gives: Kind
    body: str


def _joined(chance: random.Random) -> Task:
    gap = chance.randint(0, 4)
    which = "overlap or follow each other directly" if gap == 0 else f"have at most {gap} free days between them"
    body = f"""\
    result = []
    for first, last in sorted(intervals):
        if result and first - result[-1][1] - 1 <= {gap}:
            result[-1][1] = max(result[-1][1], last)
        else:
            result.append([first, last])
    return result"""
    text = f"Join bookings that {which}, again and again. Return the joined bookings, ordered by their first day."
    return Task(text, TABLE, body)


def _busy_days(chance: random.Random) -> Task:
    at_least, length = chance.randint(1, 4), chance.randint(1, 4)
    body = f"""\
    days = [day for first, last in intervals if last - first + 1 >= {length} for day in range(first, last + 1)]
    return sum(days.count(day) >= {at_least} for day in set(days))"""
    text = (
        f"Ignore bookings of fewer than {length} days. Return the number of days that belong to at least {at_least} "
        "of the others."
    )
    return Task(text, INT, body)


def _most_bookings(chance: random.Random) -> Task:
    gap, longest = chance.randint(0, 4), chance.randint(4, 9)
    body = f"""\
    chosen, free_from = 0, float("-inf")
    for first, last in sorted(intervals, key=lambda each: each[1]):
        if first >= free_from and last - first + 1 <= {longest}:
            chosen, free_from = chosen + 1, last + {gap} + 1
    return chosen"""
    text = (
        f"Choose bookings of at most {longest} days so that there are at least {gap} free days between two "
        f"chosen ones. "
        "Return the greatest number of bookings that can be chosen."
    )
    return Task(text, INT, body)


def _rejected(chance: random.Random) -> Task:
    rooms, cleaning = chance.randint(1, 3), chance.randint(0, 4)
    body = f"""\
    rooms, rejected = [[] for _ in range({rooms})], 0
    for first, last in intervals:
        for taken in rooms:
            if all(last + {cleaning} < begin or end + {cleaning} < first for begin, end in taken):
                taken.append((first, last))
                break
        else:
            rejected += 1
    return rejected"""
    text = (
        f"There are {rooms} rooms, and the {cleaning} days after a booking are for cleaning. Bookings come in "
        f"the order of "
        "the rows. Each one takes the first room that is free, also for the cleaning, or is rejected. Return "
        "the number of "
        "rejected bookings."
    )
    return Task(text, INT, body)


def intervals(chance: random.Random) -> Problem:
    """Draw a problem about combining or choosing intervals."""
    task = chance.choice((_joined, _busy_days, _most_bookings, _rejected))(chance)

    def draw(chance: random.Random) -> list[list[list[int]]]:
        rows = []
        for _ in range(chance.randint(1, 9)):
            first = chance.randint(1, 40)
            rows.append([first, first + chance.randint(0, 8)])
        return [rows]

    return Problem(
        "arrange",
        f"Each row of `intervals` holds the first and the last day of a booking, both included. {task.text}",
        [("intervals", TABLE)],
        task.gives,
        f"def arrange(intervals):\n{task.body}\n",
        draw,
        [[[[1, 1]]], [[[1, 2], [3, 4]]], [[[1, 9], [2, 3]]]],
    )


def common_part(chance: random.Random) -> Problem:
    """Draw a problem about scoring a matching between the letters of two texts."""
    double, loss = "".join(sorted(chance.sample("abcd", 2))), chance.randint(0, 2)
    high = chance.randint(2, 6)
    minus = f" Each letter of either text that is not matched costs {loss}." if loss else ""
    code = f"""\
def score(left, right):
    points = [-{loss} * j for j in range(len(right) + 1)]
    for i, a in enumerate(left):
        before, points[0] = points[0], -{loss} * (i + 1)
        for j, b in enumerate(right):
            match = before + ({high} if a in "{double}" else 1) if a == b else float("-inf")
            before = points[j + 1]
            points[j + 1] = max(match, points[j] - {loss}, before - {loss})
    return points[-1]
"""
    statement = (
        "Match letters of `left` with equal letters of `right`; each letter is matched at most once, and "
        "matches may not "
        f"cross. A matched '{double[0]}' or '{double[1]}' earns {high} points, any other matched letter 1 "
        f"point.{minus} "
        "Return the highest score."
    )

    def draw(chance: random.Random) -> list[str]:
        return ["".join(chance.choice("abcd") for _ in range(chance.randint(1, 12))) for _ in range(2)]

    edges = [["", ""], ["a", ""], ["abcd", "abcd"], ["abcd", "dcba"]]
    return Problem("score", statement, [("left", TEXT), ("right", TEXT)], INT, code, draw, edges)


def packing(chance: random.Random) -> Problem:
    """Draw a problem about packing a bag under special rules."""
    kind, bonus, size = chance.randrange(3), chance.randint(2, 9), chance.randint(2, 5)
    rule = (
        "each item may be taken once",
        "each item may be taken any number of times",
        f"each item may be taken once, and at most {size} items may be taken",
    )[kind]
    extra = f" Filling the bag exactly earns {bonus} in addition."
    code = f"""\
def pack(items, capacity):
    best = {{(0, 0): 0}}
    for weight, value in items:
        for (load, count), worth in list(best.items()):
            for n in range(1, {"capacity // weight" if kind == 1 else "1"} + 1):
                key = load + n * weight, {"count + n" if kind == 2 else "0"}
                if key[0] <= capacity and key[1] <= {size}:
                    best[key] = max(best.get(key, 0), worth + n * value)
    return max(worth + ({bonus} if load == capacity else 0) for (load, _), worth in best.items())
"""
    statement = (
        f"Each row of `items` holds the weight and the value of an item. A bag carries a weight of up to "
        f"`capacity`, which "
        f"is 1 or more; {rule}."
        f"{extra} Return the greatest total value."
    )

    def draw(chance: random.Random) -> list[object]:
        items = [[chance.randint(1, 12), chance.randint(1, 30)] for _ in range(chance.randint(1, 7))]
        return [items, chance.randint(1, 40)]

    takes = [("items", TABLE), ("capacity", INT)]
    edges = [[[[5, 9]], 4], [[[5, 9]], 5], [[[2, 3], [2, 3]], 4]]
    return Problem("pack", statement, takes, INT, code, draw, edges)


FAMILIES: dict[str, Family] = {
    "coins": coins,
    "spaced_choice": spaced_choice,
    "chains": chains,
    "stretches": stretches,
    "intervals": intervals,
    "common_part": common_part,
    "packing": packing,
}
