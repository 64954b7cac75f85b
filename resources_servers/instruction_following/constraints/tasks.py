"""Constraints that require a small task, such as to order a list or to reverse a text."""

from __future__ import annotations

import itertools
import re
import string
import unicodedata
from collections.abc import Callable
from datetime import date

from resources_servers.instruction_following.constraints.texts import lines, sentences, words

_MULTIPLES = [str(number) for number in range(14, 51, 7)]
_QUESTIONS, _OPTIONS = 4, 5
_QUESTION = re.compile(r"Question\s*[0-9]*\s*[.:;)|]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.)]\s*\w")
_FEWEST_COUNTRIES = 52
"""Minimum length of a list of all African countries. Published lists differ by two or three countries."""
_AROUND_NAMES = string.punctuation + string.digits + string.whitespace
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_YEARS_OF_NAPOLEON = range(1769, 1822)
_NORTHERN_CAPITALS = (
    "reykjavik", "helsinki", "oslo", "tallinn", "stockholm", "riga", "moscow", "copenhagen", "vilnius", "minsk",
    "dublin", "berlin", "amsterdam", "warsaw", "london", "brussels", "prague", "luxembourg", "paris", "vienna",
    "bratislava", "budapest", "vaduz", "chisinau", "bern", "ljubljana", "zagreb",
)  # fmt: skip
"""Capitals of Europe north of 45°, from north to south, as the public benchmark lists them."""
_OPTIONAL_CAPITAL = ("kyiv", "prague")
"""A capital that the public list lacks but an answer may have, and the capital that must follow it directly."""


def multiples(text: str) -> bool:
    """Require the multiples of 7 from 10 to 50, in order, and no other numbers."""
    return re.findall(r"[0-9]+", text) == _MULTIPLES


def questions(text: str) -> bool:
    """Require four questions labelled `Question`, each with five options and longer than the previous question."""
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


def northern_capitals(text: str) -> bool:
    """Require the capitals of Europe north of 45°, from north to south, separated by commas. Accents are ignored."""
    listed = [_plain(each) for each in text.split(",") if each.strip()]
    extra, following = _OPTIONAL_CAPITAL
    if extra in listed[:-1] and listed[listed.index(extra) + 1] == following:
        listed.remove(extra)
    return tuple(listed) == _NORTHERN_CAPITALS


def african_countries(text: str) -> bool:
    """Require at least 52 lines in reverse alphabetical order, starting with Zimbabwe. Accents are ignored."""
    names = [name for line in lines(text) if (name := _plain(line))]
    start = next((place for place, name in enumerate(names) if "zimbabwe" in name), len(names))
    listed = names[start:]
    return len(listed) >= _FEWEST_COUNTRIES and all(before >= after for before, after in itertools.pairwise(listed))


def words_reversed(text: str) -> bool:
    """Require the words "eagle bald", as they occur in a text about the bald eagle with all words reversed."""
    found = [word.lower() for word in words(text)]
    return ("eagle", "bald") in itertools.pairwise(found)


def letters_reversed(text: str) -> bool:
    """Require "bald eagle" spelled backwards, as it occurs in a text with all letters reversed."""
    return "bald eagle" in text.lower()[::-1]


def alphabetical_story(text: str) -> bool:
    """Require 26 sentences whose first letters are a to z, in order."""
    initials = [words(sentence)[0][0].lower() for sentence in sentences(text)]
    return initials == list(string.ascii_lowercase)


def napoleonic_dates(text: str) -> bool:
    """Require only dates (`YYYY-MM-DD`) from Napoleon's lifetime, separated by commas. The events are not checked."""
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
    "custom:european_capitals_sort": northern_capitals,
    "custom:reverse_newline": african_countries,
    "custom:word_reverse": words_reversed,
    "custom:character_reverse": letters_reversed,
    "custom:sentence_alphabet": alphabetical_story,
    "custom:date_format_list": napoleonic_dates,
}
