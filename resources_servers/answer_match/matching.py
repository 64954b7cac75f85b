"""Find the final answer in a reply and compare it with the expected one."""

import re

from nemo_gym.grading import normalised, same_number, strip_reasoning, unwrapped

_ANSWER_LINE = re.compile(r"[\s>*_`#-]{0,20}(?:final\s)?answer[*_`]{0,4}\s?[:：](.*)", re.IGNORECASE)
_QUOTES = "\"'“”‘’«»()[]<>"
_NUMBER_BEGINS = re.compile(r"[$€£]?\.?\d")
_PART_BEFORE = re.compile(r"(?:\d[.,:]|(?:\A|[^\w.])\.|\d\s?/\s?|(?<![^\W\d_])[-−–][$€£]?)\Z")
"""The beginning of a longer number: `0.14`, `3,14`, `.14`, `1/14`, `-14`; the dash of `Covid-19` is a hyphen."""
_PART_AFTER = re.compile(r"[.,:–-]\d|\s?/\s?\d|\^")
_LONGEST_PART = 5
"""Characters before a number that `_PART_BEFORE` needs."""


def final_answer(text: str) -> str | None:
    """Return the text from the last "Answer:" at the beginning of a line to the end of its paragraph.

    If nothing follows in this paragraph, the next one is the answer. A reply of one line is an answer as a whole; a
    longer reply without such a line does not have one (None).
    """
    lines = [line.strip() for line in strip_reasoning(text).splitlines()]
    for place in range(len(lines) - 1, -1, -1):
        if found := _ANSWER_LINE.match(lines[place]):
            return _paragraph([found[1], *lines[place + 1 :]])
    shown = [line for line in lines if line]
    return _paragraph(shown) if len(shown) == 1 else None


def _paragraph(lines: list[str]) -> str | None:
    """Return the first paragraph as one line, so that "or …" in a second line belongs to the answer."""
    found: list[str] = []
    for line in lines:
        if plain := unwrapped(line):
            found.append(plain)
        elif found:
            break
    return " ".join(found) or None


def same_text(expected: str, answer: str, *, keeps_case: bool) -> bool:
    """Return whether two texts differ only in markup, spacing, quotation marks and, unless it is kept, case."""
    return _plain(expected, keeps_case=keeps_case) == _plain(answer, keeps_case=keeps_case)


def contains(expected: str, text: str, *, keeps_case: bool) -> bool:
    """Return whether a text contains these words as a whole, not as a part of longer words or other numbers."""
    words, within = normalised(expected, keeps_case=keeps_case), normalised(text, keeps_case=keeps_case)
    found = re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", within)
    return any(not _cuts_a_number(within, mention) for mention in found)


def _cuts_a_number(text: str, mention: re.Match[str]) -> bool:
    """Return whether the number at the beginning or the end of a mention goes on outside of it."""
    before = text[max(mention.start() - _LONGEST_PART, 0) : mention.start()]
    begins = _NUMBER_BEGINS.match(mention[0]) and _PART_BEFORE.search(before)
    ends = mention[0][-1:].isdigit() and _PART_AFTER.match(text, mention.end())
    return bool(begins or ends)


def chosen(options: list[str], answer: str, *, keeps_case: bool) -> str | None:
    """Return the option that the answer names, or None if it does not name exactly one."""
    named = [option for option in options if same_text(option, answer, keeps_case=keeps_case)]
    return named[0] if len(named) == 1 else None


def equal_numbers(expected: str, answer: str) -> bool:
    """Return whether the answer is the expected number, with or without its unit."""
    return same_number(unwrapped(expected), unwrapped(answer)) is True


def _plain(text: str, *, keeps_case: bool) -> str:
    return normalised(normalised(text, keeps_case=keeps_case).strip(_QUOTES), keeps_case=keeps_case)
