"""Find the final answer of a reply, and compare it with the expected text. Recognize the claims of programs."""

from __future__ import annotations

import re

from nemo_gym.grading.text import INVISIBLE, normalised, strip_reasoning, unwrapped

_ANSWER_LINE = re.compile(rf"[\s{INVISIBLE}>*_`#-]{{0,20}}(?:final\s)?answer[*_`]{{0,4}}\s?[:：](.*)", re.IGNORECASE)
_RULE = re.compile(r"[-*_=]{3,}")
"""A Markdown line that is only a horizontal rule."""
_QUOTES = "\"'“”‘’«»()[]<>"


def is_claimed(item: object) -> bool:
    """Return whether a program added an item to its history, so that it is not a part of the record.

    Such an item names the role or type that the program gave it.
    """
    return getattr(item, "claimed_by_program", None) is not None


def final_answer(text: str) -> str | None:
    """Return the text from the last "Answer:" at the start of a line to the end of its paragraph, as one line.

    If "Answer:" ends its paragraph, return the next paragraph. If no line starts with "Answer:", return a reply of a
    single line as a whole, and None for a longer reply.
    """
    lines = [line.strip() for line in strip_reasoning(text).splitlines()]
    for place in range(len(lines) - 1, -1, -1):
        if found := _ANSWER_LINE.match(lines[place]):
            return _paragraph([found[1], *lines[place + 1 :]])
    shown = [line for line in lines if line]
    return _paragraph(shown) if len(shown) == 1 else None


def _paragraph(lines: list[str]) -> str | None:
    """Return the first paragraph as one line, so that a second line such as "or 5" belongs to the answer."""
    found: list[str] = []
    for line in lines:
        if plain := "" if _RULE.fullmatch(line) else unwrapped(line):
            found.append(plain)
        elif found:
            break
    return " ".join(found) or None


def same_text(expected: str, answer: str, *, keeps_case: bool) -> bool:
    """Return whether two texts are equal, apart from markup, spacing and outer quotation marks.

    A difference in case counts only if `keeps_case`. A curly apostrophe equals a straight one.
    """
    return _plain(expected, keeps_case=keeps_case) == _plain(answer, keeps_case=keeps_case)


def _plain(text: str, *, keeps_case: bool) -> str:
    straight = text.replace("’", "'")
    return normalised(normalised(straight, keeps_case=keeps_case).strip(_QUOTES), keeps_case=keeps_case)
