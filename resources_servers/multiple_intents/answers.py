"""Read the answer lines at the end of a reply, such as `Q1: 4`, and compare each with the expected answer."""

from __future__ import annotations

import re
from datetime import date, time
from typing import Literal

from nemo_gym import NeMoGymResponse
from nemo_gym.grading import is_claimed, normalised, strip_reasoning

Form = Literal["number", "person", "day", "time"]

_LONGEST_LINE = 300
_ANSWER_LINE = re.compile(r"[\s>*_`#(•-]{0,12}Q\s?(\d{1,2})(?:[\s)*_`]{0,6}[:：]|\)[*_`]{0,3}\s)(.*)", re.IGNORECASE)
_MARKUP_LINE = re.compile(r"[`*_~-]+")
_COUNT = re.compile(r"(?P<digits>\d{1,3}(?:,\d{3})+|\d{1,9})(?:\.0{1,2})?(?: (?P<unit>[a-z]{1,20})\.?)?", re.ASCII)
_SHORT_UNITS = {"min": "minutes", "mins": "minutes"}
_PREPOSITIONS: dict[Form, str] = {"person": "(?:with|to) ", "day": "on ", "time": "at "}
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def replies_in(response: NeMoGymResponse) -> list[str]:
    """Return the assistant's last message before each message of the user, and the assistant's final message."""
    turns: list[list[object]] = [[]]
    for item in response.output:
        if item.type == "message" and item.role == "user" and not is_claimed(item):
            turns.append([])
        else:
            turns[-1].append(item)
    return [response.model_copy(update={"output": turn}).last_text for turn in turns]


def answers_in(reply: str) -> dict[int, str]:
    """Return the answer to each question number, from lines such as `Q1: 4` at the end of a reply.

    Skip a question with two different answers, because a reply must not hedge.
    """
    found: dict[int, set[str]] = {}
    for line in reversed(strip_reasoning(reply).splitlines()):
        if not line.strip() or _MARKUP_LINE.fullmatch(line.strip()):
            continue
        answer = _ANSWER_LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        if answer is None:
            break
        # Reject "~4", which means about 4. Normalisation would turn "~" into a space, as in LaTeX.
        text = normalised(answer[2]) if "~" not in answer[2] else ""
        found.setdefault(int(answer[1]), set()).add(text)
    return {number: texts.pop() for number, texts in found.items() if len(texts) == 1}


def is_right(answer: str, form: Form, expected: str, unit: str | None = None) -> bool:
    """Return whether a normalised answer is the expected one in a usual spelling.

    `expected` is a count in digits, a person's address, an ISO date, or a time as HH:MM. Raises `ValueError` if
    `expected` does not have this form. Only a count has a unit, and the answer may omit it.
    """
    if form == "number":
        return _is_count(answer, int(expected), unit)
    answer = re.sub(f"\\A{_PREPOSITIONS[form]}", "", answer)
    if form == "person":
        return answer in _names(expected)
    if form == "day":
        return _plain(answer) in _days(date.fromisoformat(expected))
    return answer in _times(time.fromisoformat(expected))


def _is_count(answer: str, expected: int, unit: str | None) -> bool:
    count = _COUNT.fullmatch(answer)
    if count is None or int(count["digits"].replace(",", "")) != expected:
        return False
    named = _SHORT_UNITS.get(count["unit"], count["unit"])
    return named is None or (unit is not None and named.removesuffix("s") == unit.removesuffix("s"))


def _names(address: str) -> set[str]:
    account, at, _ = address.casefold().partition("@")
    if not at:
        raise ValueError(f"{address[:80]!r} is not an address")
    name = account.replace(".", " ")
    first = name.split(" ")[0]
    full = {f"{each}{mark}" for each in (first, name) for mark in ("", f" ({address})", f" <{address}>")}
    return full | {account, address, f"<{address}>"}


def _plain(day: str) -> str:
    return " ".join(_ORDINAL.sub("", day).replace(",", " ").replace(" of ", " ").removeprefix("the ").split())


def _days(day: date) -> set[str]:
    year, number, weekday = str(day.year), str(day.day), _WEEKDAYS[day.weekday()]
    months = {f"{day:%B}".casefold(), f"{day:%b}".casefold(), f"{day:%b}.".casefold()}
    written = {each for month in months for each in (f"{month} {number}", f"{number} {month}", f"{number}. {month}")}
    written |= {f"{month} {day:%d}" for month in months}
    written |= {f"{each} {year}" for each in written} | {f"{day:%Y-%m-%d}", f"{day:%Y/%m/%d}"}
    names = (weekday, weekday[:3])
    after = {f"{each} {name}" for each in written for name in (*names, *(f"({name})" for name in names))}
    return written | after | {f"{name} {each}" for each in written for name in names}


def _times(moment: time) -> set[str]:
    minute = f"{moment.minute:02}"
    whole = {f"{hour}{mark}{minute}" for hour in (f"{moment.hour:02}", moment.hour) for mark in ":."}
    half = "p" if moment.hour >= 12 else "a"
    hour = (moment.hour - 1) % 12 + 1
    hours = {f"{each}{mark}{minute}" for each in (hour, f"{hour:02}") for mark in ":."}
    hours |= {str(hour)} if moment.minute == 0 else set()
    spoken = {f"{each}{gap}{half}{mark}" for each in hours for gap in ("", " ") for mark in ("m", ".m", ".m.")}
    return whole | {f"{each}:00" for each in whole} | {f"{each} h" for each in whole} | spoken
