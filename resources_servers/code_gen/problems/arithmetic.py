"""Problems about single numbers: digits, divisors, recurrences and clocks."""

from __future__ import annotations

import random

from resources_servers.code_gen.problems.problem import INT, NUMBERS, TEXT, Family, Problem

COPRIME = "[d for d in range(1, n + 1) if gcd(d, n) == 1]"


def recurrence(chance: random.Random) -> Problem:
    """Draw a problem about computing a distant term of a linear recurrence."""
    first, second = chance.randint(0, 9), chance.randint(1, 9)
    a, b, c = chance.randint(1, 7), chance.randint(1, 7), chance.randint(0, 9)
    modulus = chance.choice((10, 97, 1000, 1009, 65_537, 1_000_003))
    far = chance.random() < 0.5
    most = 10**15 if far else 3_000
    code = f"""\
def member(n):
    def times(left, right):
        return [[sum(x * y for x, y in zip(row, column)) % {modulus} for column in zip(*right)] for row in left]

    power, step = [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[{a}, {b}, {c}], [1, 0, 0], [0, 0, 1]]
    while n:
        power = times(power, step) if n % 2 else power
        step, n = times(step, step), n // 2
    return (power[1][0] * {second} + power[1][1] * {first} + power[1][2]) % {modulus}
"""
    plus = f" + {c}" if c else ""
    statement = (
        f"A sequence begins with f(0) = {first} and f(1) = {second}. After that, f(n) = {a} * f(n - 1) + {b} * "
        f"f(n - 2)"
        f"{plus}. Return the remainder of f(n) divided by {modulus}, for `n` from 0 to {most}."
    )

    def draw(chance: random.Random) -> list[int]:
        return [chance.randint(0, chance.choice((10, 200, most)))]

    edges = [[0], [1], [2], [3], [most]]
    return Problem("member", statement, [("n", INT)], INT, code, draw, edges)


def steps(chance: random.Random) -> Problem:
    """Draw a problem about repeatedly applying a rule to a number."""
    divisor, factor, plus = chance.randint(2, 4), chance.randint(2, 6), chance.randint(1, 9)
    cap = chance.choice((50, 100, 200))
    finish, result = chance.choice(
        (
            ("the number of steps", "len(path) - 1"),
            ("the greatest number that appears, the first one included", "max(path)"),
            (
                "the number of different last digits that appear, the first number included",
                "len({p % 10 for p in path})",
            ),
        )
    )
    code = f"""\
def follow(n):
    path = [n]
    while path[-1] != 1 and len(path) <= {cap}:
        last = path[-1]
        path.append(last // {divisor} if last % {divisor} == 0 else {factor} * last + {plus})
    return {result}
"""
    statement = (
        f"In one step, a number that is divisible by {divisor} is divided by {divisor}; any other number is "
        f"multiplied by "
        f"{factor} and then increased by {plus}. Begin with the positive integer `n`, and stop at 1 or after "
        f"{cap} steps. "
        f"Return {finish}."
    )
    edges = [[1], [divisor], [divisor**4], [plus]]
    return Problem("follow", statement, [("n", INT)], INT, code, lambda draw: [draw.randint(1, 2000)], edges)


def counted(chance: random.Random) -> Problem:
    """Draw a problem about counting the numbers in a range that have certain properties."""
    a, b = sorted(chance.sample(range(2, 13), 2))
    digit, other, total = chance.randint(1, 9), chance.randint(0, 9), chance.randint(4, 14)
    properties = (
        (f"are divisible by {a}", f"n % {a} == 0"),
        (f"are divisible by {a} or by {b}", f"(n % {a} == 0 or n % {b} == 0)"),
        (f"are divisible by exactly one of {a} and {b}", f"(n % {a} == 0) != (n % {b} == 0)"),
        (f"contain the digit {digit}", f"'{digit}' in str(n)"),
        (f"have digits whose sum is {total}", f"sum(map(int, str(n))) == {total}"),
        ("have only different digits", "len(set(str(n))) == len(str(n))"),
        ("have no digit that is less than the one before it", "list(str(n)) == sorted(str(n))"),
        (f"do not contain the digit {other}", f"'{other}' not in str(n)"),
        ("have an odd number of ones in binary", "bin(n).count('1') % 2 == 1"),
        ("are equal to their reverse", "str(n) == str(n)[::-1]"),
        (f"leave the remainder {a - 1} when divided by {b}", f"n % {b} == {a - 1}"),
    )
    (one, first), (two, second) = chance.sample(properties, 2)
    finish, result = chance.choice(
        (
            ("how many there are", "len(found)"),
            ("their sum", "sum(found)"),
            ("the greatest, or -1 if there are none", "max(found, default=-1)"),
        )
    )
    code = f"""\
def search(low, high):
    found = [n for n in range(low, high + 1) if {first} and {second}]
    return {result}
"""
    statement = f"Consider the integers from `low` to `high`, both included, that {one} and {two}. Return {finish}."

    def draw(chance: random.Random) -> list[int]:
        low = chance.randint(0, 3000)
        return [low, low + chance.randint(0, 3000)]

    takes = [("low", INT), ("high", INT)]
    return Problem("search", statement, takes, INT, code, draw, [[0, 0], [1, 100], [5, 4]])


def notation(chance: random.Random) -> Problem:
    """Draw a problem about converting numbers to or from a notation with made-up digits."""
    base = chance.randint(3, 9)
    digits = "".join(chance.sample("abcdefghjkmnpqrstuvwxyz", base))
    if chance.random() < 0.5:
        statement = (
            f"Write the integer `n` (0 or greater) in base {base}. The digits 0 to {base - 1} are written as "
            f"the letters "
            f"of '{digits}', in this order. Return the text, without leading zeros (0 is '{digits[0]}')."
        )
        code = f"""\
def write(n):
    text = ""
    while n or not text:
        n, digit = divmod(n, {base})
        text = "{digits}"[digit] + text
    return text
"""
        edges: list[list[int | str]] = [[0], [base - 1], [base], [base**6]]
        return Problem("write", statement, [("n", INT)], TEXT, code, lambda draw: [draw.randint(0, 10**7)], edges)
    statement = (
        f"`text` is a number in base {base}. Its digits 0 to {base - 1} are written as the letters of "
        f"'{digits}', in this "
        "order. Other letters are to be ignored. Return the number; it is 0 if there is no digit."
    )
    code = f"""\
def read(text):
    number = 0
    for letter in text:
        if letter in "{digits}":
            number = {base} * number + "{digits}".index(letter)
    return number
"""

    def draw(chance: random.Random) -> list[str]:
        return ["".join(chance.choice(f"{digits}{digits}{digits}ilo-") for _ in range(chance.randint(1, 9)))]

    return Problem("read", statement, [("text", TEXT)], INT, code, draw, [[""], [digits[0]], [digits]])


def clocks(chance: random.Random) -> Problem:
    """Draw a problem about the time on a fictional planet some minutes earlier or later."""
    hours, minutes = chance.choice((9, 10, 18, 20, 28, 30)), chance.choice((24, 40, 45, 50, 80, 100))
    back = chance.random() < 0.5
    code = f"""\
def clock(hour, minute, passed):
    days, rest = divmod({minutes} * hour + minute {"-" if back else "+"} passed, {hours * minutes})
    return [days, rest // {minutes}, rest % {minutes}]
"""
    way = "earlier" if back else "later"
    sign = "negative for days before today" if back else "0 for today"
    statement = (
        f"On a planet, a day has {hours} hours of {minutes} minutes each. It is `hour` o'clock and `minute` "
        f"minutes. "
        f"Return the time that is `passed` minutes {way}, as a list of three integers: the day relative to "
        f"today ({sign}), "
        "the hour and the minute."
    )

    def draw(chance: random.Random) -> list[int]:
        return [chance.randrange(hours), chance.randrange(minutes), chance.randint(0, 4 * hours * minutes)]

    takes = [("hour", INT), ("minute", INT), ("passed", INT)]
    edges = [[0, 0, 0], [0, 0, 1], [hours - 1, minutes - 1, 1], [0, 0, hours * minutes]]
    return Problem("clock", statement, takes, NUMBERS, code, draw, edges)


def divisors(chance: random.Random) -> Problem:
    """Draw a problem about the divisors or the prime factors of a number."""
    low, k = chance.randint(2, 9), chance.randint(2, 7)
    of, code_of = chance.choice(
        (
            ("the divisors of `n`, with 1 and `n`", "[d for d in range(1, n + 1) if n % d == 0]"),
            ("the divisors of `n` except `n` itself", "[d for d in range(1, n) if n % d == 0]"),
            ("the prime factors of `n`, each as often as it divides `n`", "factors(n)"),
            ("the different prime factors of `n`", "sorted(set(factors(n)))"),
            ("the integers from 1 to `n` whose greatest common divisor with `n` is 1", COPRIME),
        )
    )
    which, condition = chance.choice(
        (
            ("them", "True"),
            (f"those that are greater than {low}", f"d > {low}"),
            (f"those that leave the remainder 1 when divided by {k}", f"d % {k} == 1"),
            (f"those that are not divisible by {k}", f"d % {k}"),
            ("those that are odd", "d % 2"),
        )
    )
    finish, gives, result = chance.choice(
        (
            ("the number of", INT, "len(found)"),
            ("the sum of", INT, "sum(found)"),
            ("the list, in ascending order, of", NUMBERS, "found"),
            ("the list, in descending order, of", NUMBERS, "found[::-1]"),
        )
    )
    code = f"""\
from math import gcd


def factors(n):
    found, d = [], 2
    while n > 1:
        while n % d == 0:
            found.append(d)
            n //= d
        d += 1
    return found


def divide(n):
    found = [d for d in {code_of} if {condition}]
    return {result}
"""
    statement = f"`n` is a positive integer. Take {of}. Return {finish} {which}."
    edges = [[1], [2], [12], [97], [360]]
    return Problem("divide", statement, [("n", INT)], gives, code, lambda draw: [draw.randint(1, 600)], edges)


FAMILIES: dict[str, Family] = {
    "recurrence": recurrence,
    "steps": steps,
    "counting": counted,
    "notation": notation,
    "clocks": clocks,
    "divisors": divisors,
}
