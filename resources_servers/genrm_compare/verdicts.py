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
"""The range of scores."""
FIRST_IS_MUCH_BETTER, SECOND_IS_MUCH_BETTER = 1, 6
"""The range of rankings. It has no middle: 3 and 4 mean "slightly better"."""

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_FENCE = re.compile(r"\s*`{3,}\s*\Z")
_MOST_BRACES = 20
_SHOWN = 100


class Unreadable(Exception):
    """A judge's message without a verdict; the text says why."""


@dataclass(frozen=True)
class Verdict:
    """Scores of both answers, and which of them is better."""

    score_1: float
    score_2: float
    ranking: int

    @property
    def preference(self) -> float:
        """The degree to which the first answer is better, from 0 to 1; for a slight difference it is 0.6 or 0.4."""
        return (SECOND_IS_MUCH_BETTER - self.ranking) / (SECOND_IS_MUCH_BETTER - FIRST_IS_MUCH_BETTER)

    @property
    def contradicts_itself(self) -> bool:
        """Whether the scores prefer one answer and the ranking the other."""
        return (self.score_1 - self.score_2) * (self.preference - 0.5) < 0


@dataclass(frozen=True)
class Opinion:
    """A verdict, and the numbers of the answers that it is about."""

    first: int
    """The answer that was shown on side 1."""
    second: int
    verdict: Verdict

    def preference(self, one: int) -> float:
        """Return the degree to which answer `one` is better than the other one."""
        preference = self.verdict.preference
        return preference if self.first == one else 1 - preference


def mean_preference(opinions: Iterable[Opinion], one: int) -> float:
    """Return the degree to which answer `one` is better, by all opinions on a pair."""
    return fmean(opinion.preference(one) for opinion in opinions)


def read_verdict(message: str) -> Verdict:
    """Return the verdict at the end of a judge's message. Raise `Unreadable` if it does not end with one.

    Reasoning before the JSON object and a code fence around it are allowed. Text after it is not: the judge may have
    quoted an object that an answer contains.
    """
    text = _FENCE.sub("", strip_reasoning(message)).rstrip()
    if not text:
        raise Unreadable("the message is empty")
    found = _object_at_end(text)
    if found is None:
        raise Unreadable(f"the message does not end with a JSON object: {text[-_SHOWN:]!r}")
    ranking = _number(found, "ranking", FIRST_IS_MUCH_BETTER, SECOND_IS_MUCH_BETTER)
    if ranking != int(ranking):
        raise Unreadable(f"ranking: {ranking:g} is not a whole number")
    score_1, score_2 = (_number(found, name, LOWEST, HIGHEST) for name in ("score_1", "score_2"))
    return Verdict(score_1, score_2, int(ranking))


def _object_at_end(text: str) -> JsonObject | None:
    """Return the JSON object that ends with the text, including the objects around it that end there too."""
    found, begin = None, len(text)
    for _ in range(_MOST_BRACES):
        begin = text.rfind("{", 0, begin)
        if begin < 0:
            break
        found = _parsed(text[begin:]) or found
    return found


def _parsed(text: str) -> JsonObject | None:
    try:
        value: JsonObject = json.loads(text, object_pairs_hook=_distinct, parse_constant=_rejected)
    except (ValueError, RecursionError):
        return None
    return value


def _distinct(pairs: list[tuple[str, object]]) -> JsonObject:
    # With two values for one key, either could be meant.
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
