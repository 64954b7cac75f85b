"""Find the value that the last sentence of a text states."""

from __future__ import annotations

import re

from nemo_gym.grading.numbers import NUMBER_WORDS, SCALES, number_in

LONGEST = 1_000
"""The number of characters at the end of a text in which to look for a stated value."""

_DISPLAYED = re.compile(r"\s*(?:\$\$(.{1,500}?)\$\$|\\\[(.{1,500}?)\\\])[ \t]*", re.DOTALL)
_SENTENCE_END = re.compile(r"\n|(?<=[.!?])(?<![A-Z][a-z]\.)\s+(?![a-z])")
"""The end of a line or of a sentence. The full stop of an abbreviation such as "Dr." does not count."""
_UNDECIDED = re.compile(
    r"\?[\s*_`\"')$]*\Z|n['’]t\b|\b(?:not|never|cannot|no|nor|neither|either|or|if|unless|whether|wrong|incorrect|doubt|"
    r"unlikely|could|may|might|between|least|most|than|over|under|except|assuming|calculate|compute|determine|evaluate|"
    r"find|simplify|solve|how|what)\b",
    re.IGNORECASE,
)
"""A sign that a sentence is a question, denial, limit, choice or instruction, and so does not state one value."""
_CORRECTED = re.compile(r",\s+(?:and\s+)?not\s+[^,]*\d[^,]*\Z", re.IGNORECASE)
_LINK = re.compile(r"\b(?:is|are|was|were|be|equals?)\b|:")
_FORMULA = re.compile(r"\$([^$\n]{1,500})\$(?!\d)|\\\((.{1,500}?)\\\)")
_NUMBER = re.compile(
    r"(?<![\w.^_\\{(])[-+−]?\s?[$€£]?\d[\d,]*(?:\.\d+)?(?:\s+\d+\s?/\s?\d+|\s?/\s?\d+)?(?:\s?\\?%)?(?![\w^_\\(])"
)
_OPERATOR = re.compile(r"[\\^_*=<>≤≥≠+/{}|~]")
_WORD = re.compile(r"(?<![\\A-Za-z])(?!(?:sqrt|sin|cos|tan|log|ln|pi|exp)\b)[A-Za-z]{2,}")
_CALCULATION = re.compile(
    r"\d[^=?]{0,80}?[-–+*/×÷x%][^=?]{0,80}=\s*(?P<value>[-−]?[$€£]?\d[\d,]*+(?:\.\d+)?+%?)(?!/\d)"
)
_DENIED = re.compile(r"n['’]t\b|\b(?:not|never|cannot|neither|either|wrong|incorrect|doubt|whether)\b", re.IGNORECASE)
_CHOICE = re.compile(r"\s*(?:or|to|and|-|–|±|<|>|≤|≥)\s*[$€£]?\d|.*\?\s*\Z", re.DOTALL)
_SCALE = re.compile(
    rf"\s*(?:{SCALES}|halves|thirds?|quarters?|plus|minus|negative|(?:times\s+)?{NUMBER_WORDS})\b", re.IGNORECASE
)
"""A word that changes the value of the number before it, such as "million"."""
_FACTORIAL = re.compile(r"[\s$]*\d+!+[\s$]*")
"""A text that is only a factorial, such as `5!`. In a sentence, the `!` would be an exclamation mark."""
_MARKS = " \t\r\n*_`.!,;"


def concluded(text: str) -> str | None:
    """Return the only value that the last sentence states, or None if there is none or more than one.

    If the last equation of the sentence is a calculation, return its result. Otherwise, return the value after the
    last equals sign, or else the value after the last "is" or colon, or else the only value of the sentence. A
    question, a denial or a choice does not state a value.
    """
    if _FACTORIAL.fullmatch(text[-LONGEST:]):
        return text.strip(" \t\r\n$")
    tail = _DISPLAYED.sub(lambda shown: f" ${(shown[1] or shown[2]).strip()}$ ", text[-LONGEST:]).strip(_MARKS)
    sentences = _SENTENCE_END.split(tail)
    if len(sentences) == 1 and len(text) > LONGEST:
        return None
    sentence = _CORRECTED.sub("", sentences[-1])
    if calculated := _calculated(sentence):
        return calculated
    if _UNDECIDED.search(sentence):
        return None
    outside = _FORMULA.sub(lambda formula: "$" * len(formula[0]), sentence)
    for part in (_after(outside.rfind("="), sentence), _after(_end_of_link(outside), sentence), sentence):
        if part and (found := _only_value(part.strip(_MARKS))):
            return found
    return None


def _calculated(sentence: str) -> str | None:
    """Return the result of a calculation such as `2 + 3 = 5` if it is the sentence's last equation, or else None.

    Words such as "if", which make other sentences undecided, may come before the calculation.
    """
    equations = list(_CALCULATION.finditer(sentence))
    if not equations or "=" in sentence[equations[-1].end() :]:
        return None
    if any("=" in (one or other) for one, other in _FORMULA.findall(sentence)):
        return None
    last = equations[-1]
    rest = sentence[last.end() :]
    is_result = not _DENIED.search(sentence[: last.start()]) and not _CHOICE.match(rest) and not _SCALE.match(rest)
    return last["value"].strip(_MARKS) if is_result else None


def _after(place: int, sentence: str) -> str:
    return sentence[place + 1 :] if place >= 0 else ""


def _end_of_link(text: str) -> int:
    return max((link.end() - 1 for link in _LINK.finditer(text)), default=-1)


def _only_value(part: str) -> str | None:
    formulas = [one or other for one, other in _FORMULA.findall(part)]
    if formulas:
        is_only = len(formulas) == 1 and not re.search(r"\d", _FORMULA.sub("", part))
        return formulas[0].strip() if is_only else None
    if number_in(part):
        return part
    numbers = list(_NUMBER.finditer(part))
    if _OPERATOR.search(_NUMBER.sub("", part)):
        return None if _WORD.search(part) else part
    if len(numbers) != 1 or re.search(r"\d", _NUMBER.sub("", part)) or _SCALE.match(part, numbers[0].end()):
        return None
    return numbers[0][0].strip(_MARKS)
