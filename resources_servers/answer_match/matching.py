"""Compare a final answer with the expected words, options and numbers."""

import re
from collections.abc import Iterable

from nemo_gym.grading import normalised, same_number, same_text, unwrapped

_NUMBER_BEGINS = re.compile(r"[$€£]?\.?\d")
_PART_BEFORE = re.compile(r"(?:\d[.,:]|(?:\A|[^\w.])\.|\d\s?/\s?|(?<![^\W\d_])[-−–][$€£]?)\Z")
"""A regex for text before `14` that makes it a part of `0.14`, `3,14`, `.14`, `1/14` or `-14`, but not `Covid-14`."""
_PART_AFTER = re.compile(r"[.,:–-]\d|\s?/\s?\d|\^")
_LONGEST_PART = 5
"""The number of characters directly before a match that are searched for `_PART_BEFORE`."""


def contains(expected: str, text: str, *, keeps_case: bool, asked: Iterable[str] = ()) -> bool:
    """Return whether a text contains the expected words as whole words, not as a part of other words or numbers.

    Repetitions of the messages in `asked` do not count.
    """
    words, within = normalised(expected, keeps_case=keeps_case), normalised(text, keeps_case=keeps_case)
    for message in (normalised(each, keeps_case=keeps_case) for each in asked):
        within = within.replace(message, " ") if message not in ("", words) else within
    found = re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", within)
    return any(not _cuts_a_number(within, mention) for mention in found)


def _cuts_a_number(text: str, mention: re.Match[str]) -> bool:
    """Return whether a number at the start or end of the match continues outside of it, as `14` does in `3.14`."""
    before = text[max(mention.start() - _LONGEST_PART, 0) : mention.start()]
    begins = _NUMBER_BEGINS.match(mention[0]) and _PART_BEFORE.search(before)
    ends = mention[0][-1:].isdigit() and _PART_AFTER.match(text, mention.end())
    return bool(begins or ends)


def chosen(options: list[str], answer: str, *, keeps_case: bool) -> str | None:
    """Return the option that the answer names, or None if it does not name exactly one."""
    named = [option for option in options if same_text(option, answer, keeps_case=keeps_case)]
    return named[0] if len(named) == 1 else None


def equal_numbers(expected: str, answer: str) -> bool:
    """Return whether the answer is the expected number. Either may lack a unit, but units must not differ."""
    return same_number(unwrapped(expected), unwrapped(answer)) is True
