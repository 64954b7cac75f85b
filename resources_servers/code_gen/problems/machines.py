"""Problems about executing a list of commands: machines, robots, queues and accounts."""

from __future__ import annotations

import random

from resources_servers.code_gen.problems.problem import INT, NUMBERS, TEXT, WORDS, Family, Problem

VERBS = (
    *("bim", "dax", "fep", "gol", "hux", "jat", "kip", "lor", "mez"),
    *("nub", "pov", "qua", "rix", "sut", "tev", "vam", "wog", "yed", "zin"),
)


def stack_machine(chance: random.Random) -> Problem:
    """Draw a problem about a stack machine whose commands have made-up names."""
    operations = (
        ("pops two numbers, b and then a, and pushes a + b", 2, "stack.append(a + b)"),
        ("pops two numbers, b and then a, and pushes a - b", 2, "stack.append(a - b)"),
        ("pops two numbers, b and then a, and pushes the greater one", 2, "stack.append(max(a, b))"),
        ("exchanges the top two numbers", 2, "stack += [b, a]"),
        ("pops two numbers, b and then a, and pushes 10 * a + b", 2, "stack.append(10 * a + b)"),
        ("pushes the top number once more", 1, "stack += [b, b]"),
        ("removes the top number", 1, "pass"),
        ("replaces the top number by its negative", 1, "stack.append(-b)"),
        ("increases the top number by 3", 1, "stack.append(b + 3)"),
        ("removes the top number and pushes how many numbers are left", 1, "stack.append(len(stack))"),
        ("doubles the top number", 1, "stack.append(2 * b)"),
    )
    chosen = chance.sample(operations, 4)
    names = chance.sample(VERBS, 4)
    skips = chance.random() < 0.5
    branches = "".join(
        f"""\
        elif word == "{name}":
            if len(stack) < {needs}:
                {"continue" if skips else "return -1"}
            {"b, a = stack.pop(), stack.pop()" if needs == 2 else "b = stack.pop()"}
            {code}
"""
        for name, (_, needs, code) in zip(names, chosen, strict=True)
    )
    finish, result = chance.choice(
        (
            ("the sum of the numbers on the stack", "sum(stack)"),
            ("the top number, or 0 if the stack is empty", "stack[-1] if stack else 0"),
            ("the greatest number on the stack, or 0 if it is empty", "max(stack, default=0)"),
        )
    )
    code = f"""\
def run(commands):
    stack = []
    for word in commands:
        if word.isdecimal():
            stack.append(int(word))
{branches}    return {result}
"""
    listed = "; ".join(f"'{name}' {text}" for name, (text, _, _) in zip(names, chosen, strict=True))
    short = "is skipped" if skips else "ends the program, and the result is -1"
    statement = (
        f"A machine has a stack of integers, which is empty at first. A number in `commands` is pushed. {listed}. "
        f"A command for which the stack has too few numbers {short}. After all commands, return {finish}."
    )

    def draw(chance: random.Random) -> list[list[str]]:
        return [
            [
                str(chance.randint(0, 20)) if at < 2 or chance.random() < 0.5 else chance.choice(names)
                for at in range(chance.randint(1, 14))
            ]
        ]

    edges = [[[]], [[names[0]]], [["5", *names]], [["3", "4", *names]]]
    return Problem("run", statement, [("commands", WORDS)], INT, code, draw, edges)


def robot(chance: random.Random) -> Problem:
    """Draw a problem about a robot that moves on a board."""
    width, height = chance.randint(3, 9), chance.randint(3, 9)
    left, right, ahead, back = chance.sample("abcdefgLRFBxyz", 4)
    edge, rule = chance.choice(
        (
            ("appears on the opposite side", "x, y = new_x % WIDTH, new_y % HEIGHT"),
            ("stays where it is", "x, y = (new_x, new_y) if inside else (x, y)"),
            (
                "stays and turns around",
                "x, y, facing = (new_x, new_y, facing) if inside else (x, y, (facing + 2) % 4)",
            ),
        )
    )
    finish, gives, result = chance.choice(
        (
            ("its last position as a list [x, y]", NUMBERS, "[x, y]"),
            ("how many different squares it has been on, the first one included", INT, "len(seen)"),
            ("how often it has been on its first square, the beginning included", INT, "path.count((0, 0))"),
            ("10 * x + y for its last position", INT, "10 * x + y"),
        )
    )
    code = f"""\
WIDTH, HEIGHT = {width}, {height}


def walk(moves):
    x = y = facing = 0
    path = [(0, 0)]
    for move in moves:
        if move == "{left}":
            facing = (facing - 1) % 4
        elif move == "{right}":
            facing = (facing + 1) % 4
        else:
            sign = 1 if move == "{ahead}" else -1
            step_x, step_y = [(0, 1), (1, 0), (0, -1), (-1, 0)][facing]
            new_x, new_y = x + sign * step_x, y + sign * step_y
            inside = 0 <= new_x < WIDTH and 0 <= new_y < HEIGHT
            {rule}
            path.append((x, y))
    seen = set(path)
    return {result}
"""
    statement = (
        f"A robot is on a board with x from 0 to {width - 1} and y from 0 to {height - 1}. It begins at x = 0, "
        f"y = 0 and "
        f"faces up. Upwards y grows, and to the right x grows. In `moves`, '{left}' turns it left by 90 degrees, "
        f"'{right}' turns "
        f"it right, '{ahead}' moves it one square ahead, and '{back}' moves it one square back without a turn. "
        f"If a move "
        f"leads off the board, the robot {edge}. Only after '{ahead}' or '{back}' is it on a square again, "
        f"which may be the same one. Return {finish}."
    )

    def draw(chance: random.Random) -> list[str]:
        letters = f"{ahead * 4}{left}{right}{back}"
        return ["".join(chance.choice(letters) for _ in range(chance.randint(1, 40)))]

    edges = [[""], [ahead * (height + 1)], [right + ahead * 2], [back]]
    return Problem("walk", statement, [("moves", TEXT)], gives, code, draw, edges)


def accounts(chance: random.Random) -> Problem:
    """Draw a problem about an account that posts entries under special rules."""
    start, limit, fee = chance.randint(0, 60), chance.choice((0, 20, 50)), chance.randint(1, 9)
    refused, bonus = chance.choice(("skipped", "counted")), chance.randint(40, 90)
    finish, gives, result = chance.choice(
        (
            ("the final balance", INT, "balance"),
            ("the number of rejected entries", INT, "rejected"),
            ("the balance after each entry, as a list", NUMBERS, "history"),
            ("the lowest balance, the first one included", INT, "min([START, *history])"),
        )
    )
    charge = f"{fee if refused == 'counted' else 0}"
    penalty = f" and costs a fee of {fee}" if refused == "counted" else ""
    code = f"""\
START = {start}


def book(entries):
    balance, rejected, history = START, 0, []
    for entry in entries:
        if entry < 0 and balance + entry < -{limit}:
            rejected += 1
            balance -= {charge}
        else:
            balance += entry + ({fee} if entry >= {bonus} else 0)
        history.append(balance)
    return {result}
"""
    statement = (
        f"An account has a balance of {start}. Each number in `entries` is added to the balance; negative ones are "
        f"withdrawals. A withdrawal that would bring the balance below {-limit} is rejected{penalty}. A "
        f"deposit of at "
        f"least {bonus} earns {fee} in addition. Return {finish}."
    )
    return Problem(
        "book",
        statement,
        [("entries", NUMBERS)],
        gives,
        code,
        lambda draw: [[draw.randint(-80, 100) for _ in range(draw.randint(1, 14))]],
        [[[]], [[-(start + limit)]], [[-(start + limit + 1)]], [[bonus]]],
    )


def cache(chance: random.Random) -> Problem:
    """Draw a problem about simulating a cache."""
    size = chance.randint(2, 5)
    rule, touch, out = chance.choice(
        (
            ("was used least recently", "order.remove(page)\n            order.append(page)", "order.pop(0)"),
            ("entered the cache first", "pass", "order.pop(0)"),
            ("was used most recently", "order.remove(page)\n            order.append(page)", "order.pop()"),
        )
    )
    finish, gives, result = chance.choice(
        (
            ("the number of hits", INT, "hits"),
            ("the pages in the cache at the end, in ascending order", NUMBERS, "sorted(order)"),
            ("the evicted pages, in the order of their eviction", NUMBERS, "evicted"),
            ("the number of misses minus the number of hits", INT, "len(pages) - 2 * hits"),
        )
    )
    code = f"""\
def simulate(pages):
    order, hits, evicted = [], 0, []
    for page in pages:
        if page in order:
            hits += 1
            {touch}
        else:
            if len(order) == {size}:
                evicted.append({out})
            order.append(page)
    return {result}
"""
    statement = (
        f"A cache holds up to {size} pages and is empty at first. `pages` are the pages that are requested. If "
        f"a page is "
        "in the cache, this is a hit. Else it is a miss, and the page enters the cache. If the cache is full, "
        "the page "
        f"that {rule} is evicted before. A hit and entering the cache both count as a use. Return {finish}."
    )

    def draw(chance: random.Random) -> list[list[int]]:
        return [[chance.randint(1, size + 3) for _ in range(chance.randint(1, 24))]]

    edges = [[[]], [[1, 1, 1]], [[*range(1, size + 3), 1, 2]]]
    return Problem("simulate", statement, [("pages", NUMBERS)], gives, code, draw, edges)


def service_queue(chance: random.Random) -> Problem:
    """Draw a problem about serving customers at several counters."""
    counters, pause = chance.randint(1, 4), chance.randint(0, 3)
    shortest = chance.random() < 0.5
    order = "the shortest first, and the earlier one in a tie" if shortest else "in this order"
    finish, gives, result = chance.choice(
        (
            ("the time when the last customer leaves (0 if there are none)", INT, "max(ends, default=0)"),
            ("the time when each customer's service begins, in the order of service", NUMBERS, "begins"),
            ("the sum of the times when the services begin", INT, "sum(begins)"),
        )
    )
    code = f"""\
import heapq


def serve(minutes):
    free, begins, ends = [0] * {counters}, [], []
    for length in {"sorted(minutes)" if shortest else "minutes"}:
        begin = heapq.heappop(free)
        begins.append(begin)
        ends.append(begin + length)
        heapq.heappush(free, begin + length + {pause})
    return {result}
"""
    rest = f" After each customer, a counter is closed for {pause} minutes." if pause else ""
    statement = (
        f"At time 0, customers wait for {counters} counter{'s' if counters > 1 else ''}. `minutes` holds how "
        f"long the "
        f"service of each takes. They are served {order}; the next one goes to the counter that is free "
        f"first.{rest} "
        f"Return {finish}."
    )
    return Problem(
        "serve",
        statement,
        [("minutes", NUMBERS)],
        gives,
        code,
        lambda draw: [[draw.randint(1, 30) for _ in range(draw.randint(1, 12))]],
        [[[]], [[5]], [[4] * 6]],
    )


FAMILIES: dict[str, Family] = {
    "stack_machine": stack_machine,
    "robot": robot,
    "accounts": accounts,
    "cache": cache,
    "service_queue": service_queue,
}
