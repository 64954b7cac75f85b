"""Constraints that are a small task of their own: they say what to list, to count or to tell, and in which order."""

from __future__ import annotations

import itertools
import re
import string
import unicodedata
from collections.abc import Callable
from datetime import date

from nemo_gym.grading.constraints.texts import lines, sentences, words

_MULTIPLES = [str(number) for number in range(14, 51, 7)]
_QUESTIONS, _OPTIONS = 4, 5
_QUESTION = re.compile(r"Question\s*[0-9]*\s*[.:;)|]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.)]\s*\w")
_FEWEST_COUNTRIES = 52
"""Of Africa: lists differ in two or three."""
_AROUND_NAMES = string.punctuation + string.digits + string.whitespace
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_YEARS_OF_NAPOLEON = range(1769, 1822)


def multiples(text: str) -> bool:
    """Its numbers are the multiples of 7 from 10 to 50, in order."""
    return re.findall(r"[0-9]+", text) == _MULTIPLES


def questions(text: str) -> bool:
    """Four questions, each begun by `Question`, longer than the one before, and with five options `A)` to `E)`."""
    lengths: list[int] = []
    options: list[int] = []
    for line in map(str.strip, lines(text)):
        label = _QUESTION.match(line)
        if label:
            lengths.append(len(line) - label.end())
            options.append(0)
        elif not lengths:
            return False
        elif _OPTION.match(line):
            options[-1] += 1
        elif not options[-1]:
            lengths[-1] += 1 + len(line)
    is_longer = all(before < after for before, after in itertools.pairwise(lengths))
    return is_longer and options == [_OPTIONS] * _QUESTIONS


def african_countries(text: str) -> bool:
    """From the line with Zimbabwe on, 52 lines or more in the reverse order of the alphabet, accents ignored."""
    names = [name for line in lines(text) if (name := _plain(line))]
    start = next((place for place, name in enumerate(names) if "zimbabwe" in name), len(names))
    listed = names[start:]
    return len(listed) >= _FEWEST_COUNTRIES and all(before >= after for before, after in itertools.pairwise(listed))


def words_reversed(text: str) -> bool:
    """Read from its last word to its first, it tells of the bald eagle."""
    found = [word.lower() for word in words(text)]
    return ("eagle", "bald") in itertools.pairwise(found)


def letters_reversed(text: str) -> bool:
    """Read from its last letter to its first, it tells of the bald eagle."""
    return "bald eagle" in text.lower()[::-1]


def alphabetical_story(text: str) -> bool:
    """26 sentences, the first begins with a, the second with b, and so on."""
    initials = [words(sentence)[0][0].lower() for sentence in sentences(text)]
    return initials == list(string.ascii_lowercase)


def napoleonic_dates(text: str) -> bool:
    """Nothing but dates in Napoleon's lifetime as `YYYY-MM-DD`, with commas between; which ones is not looked at."""
    return all(_is_napoleonic(each.strip()) for each in text.split(","))


def _is_napoleonic(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        return date.fromisoformat(text).year in _YEARS_OF_NAPOLEON
    except ValueError:
        return False


def _plain(line: str) -> str:
    letters = unicodedata.normalize("NFKD", line.strip(_AROUND_NAMES))
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).lower()


CHECKS: dict[str, Callable[..., bool]] = {
    "custom:multiples": multiples,
    "custom:mcq_count_length": questions,
    "custom:reverse_newline": african_countries,
    "custom:word_reverse": words_reversed,
    "custom:character_reverse": letters_reversed,
    "custom:sentence_alphabet": alphabetical_story,
    "custom:date_format_list": napoleonic_dates,
}
