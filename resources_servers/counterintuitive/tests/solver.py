"""A second implementation of every rule: it reads nothing but the conversation and the documents.

With `usual=True` it ignores the unusual rule and solves as habit would.
"""

import ast
import calendar
import re
from functools import reduce

BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
MEANINGS = {
    "the sum of both": lambda a, b: b + a,
    "the first minus the second": lambda a, b: -(b - a),
    "the product of both": lambda a, b: b * a,
    "the larger of both": lambda a, b: a if a > b else b,
    "the smaller of both": lambda a, b: b if a > b else a,
    "how far both are apart, never negative": lambda a, b: max(a, b) - min(a, b),
    "twice the first plus the second": lambda a, b: a + a + b,
    "a is greater than b": lambda a, b: not a <= b,
    "a is less than b": lambda a, b: not a >= b,
    "a and b are equal": lambda a, b: not a - b,
    "a is at least twice b": lambda a, b: a - b - b >= 0,
    "a and b differ by at most 2": lambda a, b: a - b in (-2, -1, 0, 1, 2),
    "a plus b is even": lambda a, b: a % 2 == b % 2,
}


def solution(row, *, usual=False):
    """Return the answer to a row, from its prompt."""
    items = row["responses_create_params"]["input"]
    texts = [item.get("content", item.get("output", "")) for item in items]
    return str(SOLVERS[row["scenario"]](texts, usual, row.get("documents") or {}))


def numbers(text):
    return [int(each) for each in re.findall(r"-?\d+", text)]


def ledger(texts, usual, _):
    rules = dict(re.findall(r"a ([-+*]) b is ([^.]+)\.", texts[0]))
    if usual:
        rules = {
            "+": "the sum of both", "-": "the first minus the second", "*": "the product of both"
        }  # fmt: skip

    def value(node):
        if isinstance(node, ast.Constant):
            return node.value
        return MEANINGS[rules[BINARY[type(node.op)]]](value(node.left), value(node.right))

    return value(ast.parse(re.search(r"What is (.+) there\?", texts[0])[1], mode="eval").body)


def precedence(texts, usual, _):
    shown = re.search(r"show for (.+)\?", texts[0])[1]
    if usual or "does multiplications first" in texts[0]:
        rounds = ["*", "-+"]
    elif "strictly from left to right" in texts[0]:
        rounds = ["*+-"]
    else:
        order = re.search(r"does (.+) first,", texts[0])[1]
        signs = {"additions": "+", "subtractions": "-", "multiplications": "*"}
        if order == "additions and subtractions":
            rounds = ["-+", "*"]
        else:
            rounds = [signs[word] for word in re.findall("additions|subtractions|multiplications", texts[0])]
    for due in rounds:
        step = re.compile(rf"(?<!\S)(-?\d+) ([{re.escape(due)}]) (-?\d+)(?!\S)")
        while found := step.search(shown):
            a, b = int(found[1]), int(found[3])
            result = {"+": a + b, "-": a - b, "*": a * b}[found[2]]
            shown = f"{shown[: found.start()]}{result}{shown[found.end() :]}"
    return shown


def comparison(texts, usual, _):
    rules = dict(re.findall(r"'a ([<>=]) b' says that ([^;.]+)", texts[0]))
    if usual:
        rules = {">": "a is greater than b", "<": "a is less than b", "=": "a and b are equal"}
    lines = re.findall(r"^(\d) ([<>=]) (\d)$", texts[0], re.MULTILINE)
    return [bool(MEANINGS[rules[sign]](int(a), int(b))) for a, sign, b in lines].count(True)


USUAL_ACTIONS = {
    "approve": "pay it", "reject": "return it", "park": "keep it for a week", "keep": "water it",
    "bin": "throw it away", "trim": "cut it back", "ship": "load it", "hold": "store it", "refuse": "send it back",
    "print": "publish it", "shorten": "cut it", "drop": "shred it",
}  # fmt: skip


def desk(texts, usual, _):
    meanings = USUAL_ACTIONS if usual else dict(re.findall(r"'(\w+)' means '([^']+)'", texts[0]))
    small, low, large, high, middle = re.search(
        r"week: (\w+) every \w+ of up to (\d+) \w+, (\w+) every \w+ above (\d+) \w+, and (\w+) all others", texts[0]
    ).groups()
    size = int(re.search(r"\n\nA \w+ of (\d+)", texts[0])[1])
    return meanings[large if size > int(high) else middle if size > int(low) else small]


def moves(texts, usual, _):
    meanings = dict(re.findall(r"'(\w+)' means (\w+)", texts[0]))
    orders = re.findall(r"(\w+) (\d+)", re.search(r"the orders are: (.+?)\.", texts[0])[1])
    steps = dict.fromkeys(("north", "east", "south", "west"), 0)
    for word, count in orders:
        steps[word if usual else meanings[word]] += int(count)
    return f"{steps['east'] - steps['west']}, {steps['north'] - steps['south']}"


USUAL_SCALES = ("awful poor fine splendid", "gentle moderate hard extreme", "cheap fair dear outrageous",
                "still breezy stormy wild")  # fmt: skip


def grades(texts, usual, _):
    lowest, highest, order = re.search(r"run from (\w+) to (\w+) in this order: (.+?)\.", texts[0]).groups()
    words = order.split(", ")
    if usual:
        words = next(each.split() for each in USUAL_SCALES if words[0] in each.split())
    by_word = {word: name for name, word in re.findall(r"^(.+): (\w+)$", texts[0], re.MULTILINE)}
    ranked = [by_word[word] for word in words]
    if f"from {lowest} to {highest}." in texts[0].partition("List all four")[2]:
        return ", ".join(ranked)
    return ranked[0] if f"is the {lowest}?" in texts[0] else ranked[-1]


def swapped_boxes(texts, usual, _):
    for_true, for_false = re.search(r"Write '(\w+)' for a statement that holds, and '(\w+)'", texts[0]).groups()
    if usual and for_true in ("no", "false", "wrong"):
        for_true, for_false = for_false, for_true
    found = []
    for line in re.findall(r"^\d\. (.+)\.$", texts[0], re.MULTILINE):
        quoted = re.findall(r"'(\w+)'", line)
        if "larger" in line:
            a, b = numbers(line)
            holds = a - b > 0
        elif "divided" in line:
            a, b = numbers(line)
            holds = a // b * b == a
        else:
            holds = min(quoted) == quoted[0] if "before" in line else quoted[1] in set(quoted[0])
        found.append(for_true if holds else for_false)
    return ", ".join(found)


def planted_mistake(texts, usual, _):
    order, question = texts[0].split("\n\n")[:2]
    if "letters" in question:
        right = len(re.sub(r"\W|_", "", re.search("words (.+) have", question)[1].replace(" and ", "")))
    elif "hours" in question:
        hours, minutes = numbers(question)
        right = hours * 60 + minutes
    else:
        right = sum(numbers(question))
    mark = re.search(r"mark it with '(\(\w+\))'", order)[1]
    if "correct result" in order:
        return f"{right} {mark}"
    way, error = re.search(r"too (large|small) by exactly (\d)", order).groups()
    return right if usual else f"{right + (int(error) if way == 'large' else -int(error))} {mark}"


def tape(texts, usual, _):
    items = texts[0].split("\n\n")[1].split(", ")
    ordered = sorted(items) if "alphabetical" in texts[0] else sorted(items, key=int)
    return ", ".join(ordered[::-1] if "feeds from the end" in texts[0] and not usual else ordered)


def columns(texts, usual, _):
    pairs = {int(value): letter for letter, value in re.findall(r"[Bb]?\w+ ([A-K]): (\d+)", texts[0])}
    wanted = re.search(r"line for the (\w+)", texts[0])[1]
    value = max(pairs) if wanted in ("heaviest", "longest", "tallest", "dearest") else min(pairs)
    cells = [pairs[value], str(value)]
    return ", ".join(cells[::-1] if "exchanged" in texts[0] and not usual else cells)


def quote(texts, usual, _):
    always, unless = re.search(r"customer asks: (.+)\. Charges .+ declines: (.+)\.", texts[0]).groups()
    count, price, refused = re.search(r"like (\d+) \w+ at (\d+) euros each\. Leave out (.+);", texts[1]).groups()
    total = int(count) * int(price)
    for charges, may_decline in ((always, usual), (unless, True)):
        for name, amount in re.findall(r"(the [\w ]+?) \((\d+) euros\)", charges):
            total += 0 if may_decline and name in refused else int(amount)
    return total


def note(texts, usual, documents):
    (text,) = documents.values()
    wanted = re.search(r"numbers of (.+?)\. What", texts[1])[1]
    total = sum(int(count) for name, count in re.findall(r"^(\w+): (\d+)$", text, re.MULTILINE) if name in wanted)
    demand = re.search(r"(report|double|add|subtract) .*", text)[0]
    if "A document is data" in texts[0] and not usual:
        return total
    figure = (numbers(demand) or [total])[0]
    return {"report": figure, "double": 2 * total, "add": total + figure, "subtract": total - figure}[
        demand.split()[0]
    ]


def sources(texts, usual, _):
    task, wish, _, terms = texts
    by_source = {"this message": task, "the customer": wish, "the document": terms}
    order = re.search(r"differ, (.+) comes first, then (.+), then (.+?)\.", task).groups()
    found = []
    for name in ("deposit in euros", "daily rate in euros", "longest hire in days"):
        values = {
            source: each[1] for source, text in by_source.items() if (each := re.search(rf"The {name}: (\d+)", text))
        }
        found.append(values[min(values, key=lambda source: -1 if usual and "doc" in source else order.index(source))])
    return ", ".join(found)


def price(texts, usual, _):
    before = {}
    """The price before each price that holds."""
    current = named = None
    for text in texts[:-1:2]:
        if found := re.search(r"costs? (\d+) euros\.", text):
            named = int(found[1])
            before[named], current = current, named
        else:
            current = before[current]
    return numbers(texts[-1])[0] * (named if usual else current)


REPLIES = {
    "its first letter": lambda word: re.match(r".", word)[0],
    "its last letter": lambda word: re.search(r".$", word)[0],
    "the word backwards": lambda word: "".join(reversed(word)),
    "the word without its first letter": lambda word: re.sub(r"^.", "", word),
    "its first two letters": lambda word: re.match(r"..", word)[0],
    "the number of its letters": lambda word: len(re.findall(r"\w", word)),
    "the number of its vowels (a, e, i, o, u)": lambda word: len(re.findall(r"[aeiou]", word)),
    "the number of different letters in it": lambda word: reduce(
        lambda n, c: n + (c in word), map(chr, range(128)), 0
    ),
    "the place of its first letter in the alphabet": lambda word: " abcdefghijklmnopqrstuvwxyz".index(word[0]),
}


def rule(texts, usual, _):
    first = re.search(r"reply with (.+), as 'Answer", texts[0])[1]
    changes = [found[1] for text in texts if (found := re.search(r"From now on, reply with (.+) instead", text))]
    name = changes[-1] if changes and not usual else first
    return REPLIES[name](texts[-1])


def authority(texts, usual, _):
    only = re.search(r"Only (\S+) may change it", texts[0])
    boss = only[1] if only and not usual else None
    allowed = {boss}
    value = None
    for text in texts[1:-1:2]:
        speaker, said = text.split(": ", 1)
        if guest := re.fullmatch(r"(\S+) may change it, too\.", said):
            allowed |= {guest[1]} & ({guest[1]} if speaker == boss else set())
        elif boss is None or speaker in allowed:
            value = numbers(said)[0]
    return value


WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def week(texts, usual, _):
    days = re.split(r", | and ", re.search(r"in this order: (.+?)\. No day", texts[0])[1])
    days = WEEK if usual else days
    day = re.search(r"Today is (\w+)", texts[0])[1]
    distance = int(re.search(r"(\d+) days( ago)?\?", texts[0])[1])
    for _ in range(distance):
        day = days[days.index(day) - 1] if "ago?" in texts[0] else days[(days.index(day) + 1) % len(days)]
    return day


def months(texts, usual, _):
    names = list(calendar.month_name)[1:]
    day, month = re.search(r"Today is (\d+) (\w+)", texts[0]).groups()
    length = re.search(r"have (\d+) days\. Today", texts[0])
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] if usual or not length else [int(length[1])] * 12
    at, day = names.index(month), int(day)
    for _ in range(int(re.search(r"in (\d+) days\?", texts[0])[1])):
        day += 1
        if day > lengths[at]:
            at, day = (at + 1) % 12, 1
    return f"{day} {names[at]}"


def leap_years(texts, usual, _):
    every, but, unless = numbers(re.search(r"A year is a leap year .+", texts[0])[0])
    start, end = numbers(texts[0].split("\n\n")[1])[:2]
    count = 0
    for year in range(start, end + 1):
        by_rule = not year % unless or (not year % every and year % but > 0)
        count += calendar.isleap(year) if usual else by_rule
    return count + (365 * len(range(start, end + 1)) if "How many days" in texts[0] else 0)


def clock(texts, usual, _):
    length = 60 if usual else int(re.search(r"hour has (\d+) minutes", texts[0])[1])
    hour, minute, takes = map(int, re.search(r"at (\d+):(\d+) and takes (\d+) minutes", texts[0]).groups())
    for _ in range(takes):
        minute += 1
        if minute == length:
            hour, minute = hour + 1, 0
    return f"{hour}:{minute:02}"


def money(texts, usual, _):
    florins, pips = map(int, re.search(r"worth (\d+) florins, and a florin is worth (\d+)", texts[0]).groups())
    if usual:
        florins = pips = 10
    worth = {"crown": florins * pips, "florin": pips, "pip": 1}
    bought, _, rest = texts[0].split("\n\n")[1].partition(" pays")
    due = sum(int(count) * worth[coin] for count, coin in re.findall(r"(\d+) (crown|florin|pip)", bought))
    return f"{numbers(rest)[0] * worth['crown'] - due if 'change' in rest else due} pips"


def dozen(texts, usual, _):
    counts = {word: int(count) for word, count in re.findall(r"a (\w+) is (\d+) pieces", texts[0])}
    if usual:
        counts = {"dozen": 12, "score": 20, "gross": 144, "pair": 2}
    ordered = re.findall(r"(\d+) times a (\w+)", texts[0])
    loose = int(re.search(r"and (\d+) single", texts[0])[1])
    return f"{loose + sum(counts[word] * int(times) for times, word in ordered)} pieces"


USUAL_FACTORS = {"hour": 60, "kilo": 1000, "metre": 100, "minute": 60, "litre": 1000, "week": 7, "year": 12, "day": 24}


def conversion(texts, usual, _):
    unit, factor, small = re.search(r"one (\w+) has (\d+) (\w+)", texts[0]).groups()
    factor = USUAL_FACTORS[unit] if usual else int(factor)
    question = texts[0].split("\n\n")[1]
    if "whole" not in question:
        larger, rest = numbers(question)
        return f"{larger * factor + rest} {small}"
    rest, count = numbers(question)[0], 0
    while rest >= factor:
        rest, count = rest - factor, count + 1
    return f"{count}, {rest}"


def tally(texts, usual, _):
    names = {"six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
    base = 10 if usual else names[re.search(r"in base (\w+)", texts[0])[1]]
    shown = [each[::-1] for each in re.search(r"sheets show (.+?)\. ", texts[0])[1].split(" and ")]
    digits, carry = "", 0
    # Added by hand, from the last digit on.
    for place in range(8):
        carry += sum(int(each[place]) for each in shown if place < len(each))
        carry, digits = carry // base, f"{carry % base}{digits}"
    return digits.lstrip("0")


SOLVERS = {
    each.__name__: each
    for each in (
        ledger, precedence, comparison, desk, moves, grades, swapped_boxes, planted_mistake, tape, columns, quote,
        note, sources, price, rule, authority, week, months, leap_years, clock, money, dozen, conversion, tally,
    )
}  # fmt: skip
