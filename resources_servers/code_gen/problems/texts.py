"""Problems about texts and words."""

from __future__ import annotations

import random
import string

from resources_servers.code_gen.problems.lists import Finish, Step
from resources_servers.code_gen.problems.problem import BOOL, INT, TEXT, WORDS, Family, Problem

POOL = (
    *(
        "amber",
        "level",
        "canoe",
        "noon",
        "drift",
        "ember",
        "fable",
        "radar",
        "grove",
        "haze",
        "ivory",
        "jolt",
        "kayak",
    ),
    *("lemon", "madam", "north", "opal", "pearl", "quill", "river", "stone", "tundra", "umber", "velvet", "willow"),
    *(
        "xenon",
        "yonder",
        "zephyr",
        "a",
        "an",
        "at",
        "be",
        "do",
        "go",
        "if",
        "it",
        "of",
        "on",
        "to",
        "we",
        "eye",
        "dad",
    ),
    *("pop", "wow", "banana", "letter", "coffee", "balloon", "committee"),
)
VOWELS = "aeiou"


def words(draw: random.Random, most: int = 10) -> list[str]:
    """Return random lowercase words, often with repetitions."""
    return [draw.choice(POOL) for _ in range(draw.randint(1, most))]


def _keep(chance: random.Random) -> Step:
    k, letter, odd = chance.randint(2, 5), chance.choice("aeiolmnrt"), chance.choice(("even", "odd"))
    remainder = 0 if odd == "even" else 1
    steps = (
        Step(f"have more than {k} letters", f"len(w) > {k}"),
        Step(f"have at most {k} letters", f"len(w) <= {k}"),
        Step(f"have an {odd} number of letters", f"len(w) % 2 == {remainder}"),
        Step(f"contain the letter '{letter}'", f"'{letter}' in w"),
        Step(f"do not contain the letter '{letter}'", f"'{letter}' not in w"),
        Step(f"end with a letter after '{letter}' in the alphabet", f"w[-1] > '{letter}'"),
        Step("begin with a vowel (a, e, i, o or u)", f"w[0] in '{VOWELS}'"),
        Step("end with a consonant (not a, e, i, o or u)", f"w[-1] not in '{VOWELS}'"),
        Step("have two equal letters next to each other", "any(a == b for a, b in zip(w, w[1:]))"),
        Step("consist of different letters", "len(set(w)) == len(w)"),
        Step("did not appear earlier in the list", "w not in words[:i]"),
        Step("read the same backwards", "w == w[::-1]"),
        Step("do not read the same backwards", "w != w[::-1]"),
        Step(f"are at an {odd} index, counted from 0", f"i % 2 == {remainder}"),
    )
    return chance.choice(steps)


def _change(chance: random.Random) -> Step:
    k, letter = chance.randint(1, 12), chance.choice("xyzq")
    alphabet, turned = string.ascii_lowercase, string.ascii_lowercase[k:] + string.ascii_lowercase[:k]
    few = chance.randint(1, 3)
    steps = (
        Step("reversed", "w[::-1]"),
        Step("in upper case", "w.upper()"),
        Step("with its first letter in upper case", "w.capitalize()"),
        Step(
            f"with each vowel (a, e, i, o, u) replaced by '{letter}'",
            f"''.join('{letter}' if c in '{VOWELS}' else c for c in w)",
        ),
        Step("with its letters in alphabetical order", "''.join(sorted(w))"),
        Step("with each letter doubled", "''.join(2 * c for c in w)"),
        Step(
            f"with each letter moved {k} places on in the alphabet ('a' follows 'z')",
            f"w.translate(str.maketrans('{alphabet}', '{turned}'))",
        ),
        Step("with its first and last letter exchanged", "w if len(w) < 2 else w[-1] + w[1:-1] + w[0]"),
        Step(f"cut off after {few + 1} letters", f"w[:{few + 1}]"),
        Step("with repeated letters removed (the first of each stays)", "''.join(dict.fromkeys(w))"),
        Step(f"with its first {few} letters moved to its end", f"w[{few}:] + w[:{few}]"),
        Step(f"followed by '{letter}' and its number of letters", f"f'{{w}}{letter}{{len(w)}}'"),
        Step("unchanged", "w"),
    )
    return chance.choice(steps)


def _finish(chance: random.Random) -> Finish:
    separator = chance.choice(("-", "+", ".", ":", "/"))
    at = chance.randint(1, 3)
    finishes = (
        Finish(f"them joined by '{separator}'", f"'{separator}'.join(values)", TEXT),
        Finish(f"them in alphabetical order, joined by '{separator}'", f"'{separator}'.join(sorted(values))", TEXT),
        Finish("them in reverse order", "values[::-1]", WORDS),
        Finish("them ordered by length, then alphabetically", "sorted(values, key=lambda w: (len(w), w))", WORDS),
        Finish(
            "them ordered by their last character; equal ones stay in their order",
            "sorted(values, key=lambda w: w[-1:])",
            WORDS,
        ),
        Finish(
            "the longest of them, the first one in a tie, or an empty text if there are none",
            "max(values, key=len, default='')",
            TEXT,
        ),
        Finish("the alphabetically last of them, or an empty text if there are none", "max(values, default='')", TEXT),
        Finish("the total number of their characters", "sum(map(len, values))"),
        Finish("the number of different ones", "len(set(values))"),
        Finish("the number of different characters in them", "len(set(''.join(values)))"),
        Finish(
            f"the characters at index {at} of those that have one, as one text",
            f"''.join(w[{at}] for w in values if len(w) > {at})",
            TEXT,
        ),
        Finish("their first characters, as one text", "''.join(w[:1] for w in values)", TEXT),
    )
    return chance.choice(finishes)


def pipeline(chance: random.Random) -> Problem:
    """Draw a problem about filtering, mapping and reducing a list of words."""
    keep, change, finish = _keep(chance), _change(chance), _finish(chance)
    code = f"""\
def solve_words(words):
    kept = [w for i, w in enumerate(words) if {keep.code}]
    values = [{change.code} for w in kept]
    return {finish.code}
"""
    statement = (
        f"Given the list `words`, keep the words that {keep.text}. Take each kept word {change.text}. "
        f"Return {finish.text}. All words are in lower case."
    )
    edges = [[[]], [["noon"]], [["a", "willow", "a"]]]
    return Problem("solve_words", statement, [("words", WORDS)], finish.gives, code, lambda draw: [words(draw)], edges)


def run_lengths(chance: random.Random) -> Problem:
    """Draw a problem about run-length encoding."""
    fewest, mark = chance.randint(2, 4), chance.choice(("*", "#", "~", "^"))
    front = chance.random() < 0.5
    form = f"its length, '{mark}' and the letter" if front else f"the letter, '{mark}' and its length"
    shown = f"f'{{length}}{mark}{{letter}}'" if front else f"f'{{letter}}{mark}{{length}}'"
    code = f"""\
from itertools import groupby


def encode(text):
    parts = []
    for letter, run in groupby(text):
        length = len(list(run))
        parts.append({shown} if length >= {fewest} else letter * length)
    return "".join(parts)
"""
    statement = (
        f"A run is a longest stretch of equal letters in `text`. Replace each run of at least {fewest} letters "
        f"by {form}. "
        "Shorter runs stay as they are. Return the result."
    )

    def draw(chance: random.Random) -> list[str]:
        return ["".join(chance.choice("abc") * chance.randint(1, fewest + 3) for _ in range(chance.randint(1, 7)))]

    return Problem("encode", statement, [("text", TEXT)], TEXT, code, draw, [[""], ["abc"], ["a" * 12]])


def brackets(chance: random.Random) -> Problem:
    """Draw a problem about nested brackets. Pairs of letters, such as `b` and `d`, may count as brackets, too."""
    pairs = chance.sample(("()", "[]", "{}", "<>", "bd", "pq", "uv", "LJ", "/\\", "AV"), chance.randint(2, 3))
    named = ", ".join(f"'{left}' closed by '{right}'" for left, right in pairs)
    rule = f"The brackets are {named}. A text is balanced if each bracket is closed in the right order"
    closing = {right: left for left, right in pairs}
    finish, gives, result = chance.choice(
        (
            ("Return whether `text` is balanced", BOOL, "not failed and not stack"),
            (
                "Return the greatest depth of nesting if `text` is balanced, else -1",
                INT,
                "-1 if failed or stack else depth",
            ),
            (
                "Return the length of the longest beginning of `text` that a suffix could make balanced",
                INT,
                "at if failed else len(text)",
            ),
        )
    )
    code = f"""\
def check_brackets(text):
    closing = {closing!r}
    stack, depth, failed, at = [], 0, False, 0
    for at, letter in enumerate(text):
        if letter in closing.values():
            stack.append(letter)
            depth = max(depth, len(stack))
        elif letter in closing and (not stack or stack.pop() != closing[letter]):
            failed = True
            break
    return {result}
"""

    def balanced(chance: random.Random, deep: int) -> str:
        parts = [""]
        for _ in range(chance.randint(1, 3) if deep else 0):
            left, right = chance.choice(pairs)
            parts.append(f"{left}{balanced(chance, deep - 1)}{right}")
        return "".join(parts)

    def draw(chance: random.Random) -> list[str]:
        text = balanced(chance, chance.randint(1, 3))
        if chance.random() < 0.5 and text:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(("", *"".join(pairs))) + text[at + 1 :]
        return [text]

    edges = [[""], [pairs[0][0]], [pairs[0][1]]]
    statement = f"{rule}, and nothing is left open. Other characters do not count. {finish}."
    return Problem("check_brackets", statement, [("text", TEXT)], gives, code, draw, edges)


def edits(chance: random.Random) -> Problem:
    """Draw a problem about computing a weighted edit distance."""
    insert, delete, replace = chance.randint(1, 5), chance.randint(1, 5), chance.randint(1, 7)
    code = f"""\
def edit_cost(source, target):
    costs = [{insert} * j for j in range(len(target) + 1)]
    for i, a in enumerate(source):
        before, costs[0] = costs[0], {delete} * (i + 1)
        for j, b in enumerate(target):
            change = before + (0 if a == b else {replace})
            before = costs[j + 1]
            costs[j + 1] = min(change, costs[j] + {insert}, before + {delete})
    return costs[-1]
"""
    statement = (
        f"Inserting a letter costs {insert}, deleting one costs {delete}, and replacing one costs {replace}. "
        "Return the lowest cost to turn `source` into `target`."
    )

    def draw(chance: random.Random) -> list[str]:
        return ["".join(chance.choice("abcd") for _ in range(chance.randint(1, 9))) for _ in range(2)]

    takes = [("source", TEXT), ("target", TEXT)]
    edges = [["", "abc"], ["abc", ""], ["same", "same"]]
    return Problem("edit_cost", statement, takes, INT, code, draw, edges)


def wrapped(chance: random.Random) -> Problem:
    """Draw a problem about wrapping words into lines."""
    width, mark = chance.randint(9, 24), chance.choice((".", "_", "-", "*"))
    align = chance.choice(("left", "right"))
    pad = f"line.ljust({width}, '{mark}')" if align == "left" else f"line.rjust({width}, '{mark}')"
    side = "right" if align == "left" else "left"
    code = f"""\
def wrap(words):
    lines = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= {width}:
            lines[-1] += "{mark}" + word
        else:
            lines.append(word)
    return "|".join({pad} for line in lines)
"""
    statement = (
        f"Fill lines of at most {width} characters with `words`, in order, with '{mark}' between two words of "
        f"a line. "
        f"A word begins a new line only if it does not fit. Fill up each line on its {side} with '{mark}' to "
        f"{width} "
        "characters. Return the lines joined by '|'."
    )
    return Problem(
        "wrap", statement, [("words", WORDS)], TEXT, code, lambda draw: [words(draw, 14)], [[[]], [["committee"]]]
    )


FAMILIES: dict[str, Family] = {
    "words": pipeline,
    "run_lengths": run_lengths,
    "brackets": brackets,
    "edits": edits,
    "wrapping": wrapped,
}
