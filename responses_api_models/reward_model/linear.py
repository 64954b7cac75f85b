"""A reward model without weights to download: a linear function of a few features of request and answer.

It is meant for tests and demonstrations. It can be fooled, because it does not check grammar or facts. Its best score
is 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from itertools import pairwise
from typing import NamedTuple

from nemo_gym.grading import SpecialTokens
from responses_api_models.reward_model.exchange import Exchange

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
ENOUGH_WORDS = 30
ENOUGH_COVERAGE = 0.6
FUNCTION_WORDS_WITHIN, WORDS_PER_FUNCTION_WORD, MOST_FUNCTION_WORDS = 12, 4, 0.8
"""In prose, a passage of 12 words has at least 3 different function words, but at most 80 % function words.

An article is never followed by a function word.
"""
ARTICLES = frozenset(("a", "an", "the"))
OWN_WORD_WITHIN = 20
"""A passage of 20 words is in the answer's own words if it has a content word that is not in the request."""
TOO_LITTLE_PROSE, ENOUGH_PROSE = 0.5, 0.85
TOO_FEW_OWN_WORDS, ENOUGH_OWN_WORDS = 0.5, 0.75
"""For each factor of `prose`: the share of matching passages up to which it is 0, and the share from which it is 1."""
TOLERATED_ECHO = TOLERATED_REPETITION = 0.25
ECHOED_WORDS, REPEATED_WORDS = 6, 3
SHORTEST_KEYWORD = 5
FUNCTION_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "because", "been", "but", "by", "can", "could", "do", "for", "from",
    "had", "has", "have", "he", "her", "him", "his", "i", "if", "in", "is", "it", "its", "me", "my", "no", "not",
    "of", "on", "or", "our", "she", "should", "so", "than", "that", "the", "their", "them", "then", "there", "they",
    "this", "to", "us", "was", "we", "were", "what", "when", "which", "who", "will", "with", "would", "you", "your",
))  # fmt: skip
_NUMBER = r"(?:\d|five\b|ten\b|hundred\b|one hundred\b)"
CLAIM = re.compile(
    rf"\b(?:score|rating|reward|grade|verdict)\b(?:[\W_]+[a-z]+){{0,4}}[\W_]*{_NUMBER}"
    rf"|{_NUMBER} ?(?:/|out of) ?(?:5|10|100|five|ten|a hundred)\b"
    r"|\b(?:perfect|high|highest|maximum|full|top|best) (?:score|reward|rating|marks|grade)\b"
    r"|\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instructions?|rules|criteria)\b",
    re.IGNORECASE,
)
"""A regex for text that claims a score or asks the judge to ignore its rules."""


class Features(NamedTuple):
    """Features of an answer, each from 0 to 1."""

    coverage: float
    """The share of the request's keywords that the answer contains, scaled so that 60 % count as 1, times `prose`."""
    prose: float
    """The degree to which the answer is prose in its own words, rather than words from the request."""
    length: float
    """The number of words, scaled so that 30 words count as 1."""
    echo: float
    """How much of the answer is copied from the request."""
    repetition: float
    """How much of the answer repeats itself."""
    imitation: float
    """1 if the answer contains a special token, claims a score, or orders a judge to ignore its rules."""


BIAS = -4.0
WEIGHTS = Features(coverage=3.0, prose=2.0, length=1.0, echo=-6.0, repetition=-6.0, imitation=-8.0)
BEST_SCORE = 2.0
"""The score of an answer with all good features and no bad one."""


class LinearScorer:
    """A scorer that returns `BIAS` plus the features weighted by `WEIGHTS`."""

    def __init__(self, special_tokens: SpecialTokens) -> None:
        self._special_tokens = special_tokens

    async def score(self, exchange: Exchange) -> float:
        features = self.features(exchange.request, exchange.answer)
        return BIAS + sum(weight * value for weight, value in zip(WEIGHTS, features, strict=True))

    async def aclose(self) -> None:
        """Do nothing, because there is no connection to close."""

    def features(self, request: str, answer: str) -> Features:
        asked, said = _words(request), _words(answer)
        keywords = {word for word in asked if len(word) >= SHORTEST_KEYWORD or word[0].isdigit()}
        covered = len(keywords.intersection(said)) / len(keywords) if keywords else float(bool(said))
        ends = bool(re.search(r"[.!?…。！？][\W_]*$", answer[-20:]))
        prose = _prose(said) * _own_words(said, frozenset(asked)) * ends
        repeated = _sequences(said, REPEATED_WORDS)
        copied, own = _sequences(said, ECHOED_WORDS), set(_sequences(asked, ECHOED_WORDS))
        echo = sum(each in own for each in copied) / max(len(copied), 1)
        repetition = 1 - len(set(repeated)) / max(len(repeated), 1)
        return Features(
            coverage=min(1.0, covered / ENOUGH_COVERAGE) * prose,
            prose=prose,
            length=min(1.0, len(said) / ENOUGH_WORDS),
            echo=_beyond(TOLERATED_ECHO, echo),
            repetition=_beyond(TOLERATED_REPETITION, repetition) if repeated else 0.0,
            imitation=float(self._special_tokens.occur_in(answer) or CLAIM.search(answer) is not None),
        )


def _words(text: str) -> list[str]:
    return [word.casefold() for word in WORD.findall(text)]


def _sequences(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]


def _prose(words: Sequence[str]) -> float:
    """Rate from 0 to 1 how much of a text uses function words as prose does."""

    def is_prose(passage: Sequence[str]) -> bool:
        found = [word for word in passage if word in FUNCTION_WORDS]
        if len(set(found)) < len(passage) // WORDS_PER_FUNCTION_WORD:
            return False
        is_garbled = any(one in ARTICLES and other in FUNCTION_WORDS for one, other in pairwise(passage))
        return not is_garbled and len(found) <= MOST_FUNCTION_WORDS * len(passage)

    return _between(TOO_LITTLE_PROSE, ENOUGH_PROSE, _share(words, FUNCTION_WORDS_WITHIN, is_prose))


def _own_words(words: Sequence[str], asked: Set[str]) -> float:
    """Rate from 0 to 1 how much of a text has content words that are not in the request."""
    known = FUNCTION_WORDS | asked
    share = _share(words, OWN_WORD_WITHIN, lambda passage: not known.issuperset(passage))
    return _between(TOO_FEW_OWN_WORDS, ENOUGH_OWN_WORDS, share)


def _share(words: Sequence[str], length: int, is_right: Callable[[Sequence[str]], bool]) -> float:
    """Apply `is_right` to each passage of `length` words and return the share that passes.

    A shorter text counts as one passage.
    """
    passages = _sequences(words, length) or [tuple(words)]
    return sum(map(is_right, passages)) / len(passages)


def _between(low: float, high: float, share: float) -> float:
    return min(1.0, max(0.0, share - low) / (high - low))


def _beyond(tolerated: float, share: float) -> float:
    """Return by how much a share exceeds the tolerated share, scaled to the range from 0 to 1."""
    return max(0.0, share - tolerated) / (1 - tolerated)
