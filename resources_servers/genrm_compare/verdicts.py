"""Read a generative reward model's verdict on two answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from nemo_gym.grading import strip_reasoning
from nemo_gym.jsonl import JsonObject

LOWEST, HIGHEST = 1, 5
FIRST_IS_MUCH_BETTER, SECOND_IS_MUCH_BETTER = 1, 6
"""The range of rankings. It has no middle: 3 and 4 mean "slightly better"."""

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_CLOSING = re.compile(r"`+|\*+|\]|\.|</([a-z_]{1,20})>", re.ASCII | re.IGNORECASE)
"""A regex for markup that may follow a verdict. Stars, brackets and tags must be opened before the verdict."""
_LONGEST = 50_000
"""Maximum number of characters to read from the end of a message."""
_LONGEST_WRAPPING = 100
_MOST_BRACES = 20
_SHOWN = 100


class Unreadable(Exception):
    """An error for a judge's message without a verdict. The error's text says what is wrong."""


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict: two scores, and a ranking from 1 (first answer much better) to 6 (second much better)."""

    score_1: float
    score_2: float
    ranking: int

    @property
    def preference(self) -> float:
        """The degree to which the first answer is better, from 0 to 1; for a slight difference it is 0.6 or 0.4."""
        return (SECOND_IS_MUCH_BETTER - self.ranking) / (SECOND_IS_MUCH_BETTER - FIRST_IS_MUCH_BETTER)

    @property
    def contradicts_itself(self) -> bool:
        """Whether the scores prefer one answer, but the ranking prefers the other one."""
        return (self.score_1 - self.score_2) * (self.preference - 0.5) < 0


@dataclass(frozen=True)
class Opinion:
    """A verdict, with the indices of the two answers that it compares."""

    first: int
    """The index of the answer that the judge saw first, as `response_1`."""
    second: int
    verdict: Verdict

    def preference(self, one: int) -> float:
        """Return the degree to which answer `one` is better than the other one."""
        preference = self.verdict.preference
        return preference if self.first == one else 1 - preference


def mean_preference(opinions: Iterable[Opinion], one: int) -> float:
    """Return the degree to which answer `one` is better: the mean over all opinions on a pair."""
    return fmean(opinion.preference(one) for opinion in opinions)


def read_verdict(message: str) -> Verdict:
    """Return the verdict at the end of a judge's message. Raise `Unreadable` if it is missing.

    Reasoning before the JSON object is allowed, and so is markup around it: a code fence, stars, a tag, a list or an
    object with nothing else. Other text after the object is not allowed, because the object may be a quote from an
    answer.
    """
    text = strip_reasoning(message).rstrip()[-_LONGEST:]
    if not text:
        raise Unreadable("the message is empty")
    found = _object_at_end(text)
    if found is None:
        raise Unreadable(f"the message does not end with a JSON object: {text[-_SHOWN:]!r}")
    found = _unwrapped(found)
    ranking = _number(found, "ranking", FIRST_IS_MUCH_BETTER, SECOND_IS_MUCH_BETTER)
    if ranking != int(ranking):
        raise Unreadable(f"ranking: {ranking:g} is not a whole number")
    score_1, score_2 = (_number(found, name, LOWEST, HIGHEST) for name in ("score_1", "score_2"))
    return Verdict(score_1, score_2, int(ranking))


def _object_at_end(text: str) -> JsonObject | None:
    """Return the outermost JSON object at the end of a text. Closing markup may follow the object."""
    end = begin = first = text.rfind("}") + 1
    found = None
    for _ in range(_MOST_BRACES):
        begin = text.rfind("{", 0, begin)
        if begin < 0:
            break
        if parsed := _parsed(text[begin:end]):
            found, first = parsed, begin
    after = text[end:]
    is_at_end = len(after) <= _LONGEST_WRAPPING and _closes(text[max(0, first - _LONGEST_WRAPPING) : first], after)
    return found if is_at_end else None


def _closes(before: str, after: str) -> bool:
    """Return whether `after` only closes what `before` opens, or is a code fence or a period."""
    while after := after.lstrip():
        closing = _CLOSING.match(after)
        if closing is None:
            return False
        mark, after, before = closing[0], after[closing.end() :], before.rstrip()
        if mark[0] == "`":
            before = before.rpartition("```")[0].rstrip("`")
        elif mark != ".":
            opening = "[" if mark == "]" else mark.replace("/", "")
            if not before.endswith(opening):
                return False
            before = before.removesuffix(opening)
    return True


def _unwrapped(found: JsonObject) -> JsonObject:
    """Return an object's only value if that is an object, as in `{"verdict": {…}}`, or else the object itself."""
    only, *others = found.values()
    return only if isinstance(only, dict) and not others else found


def _parsed(text: str) -> JsonObject | None:
    try:
        value: JsonObject = json.loads(text, object_pairs_hook=_distinct, parse_constant=_rejected)
    except (ValueError, RecursionError):
        return None
    return value


def _distinct(pairs: list[tuple[str, object]]) -> JsonObject:
    # Reject duplicate keys, because either value could be meant.
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _rejected(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _number(verdict: JsonObject, name: str, lowest: int, highest: int) -> float:
    value = verdict.get(name)
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= highest:
        found = "missing" if name not in verdict else repr(value)[:_SHOWN]
        raise Unreadable(f"{name}: expected a number from {lowest} to {highest}, found {found}")
    return float(value)
