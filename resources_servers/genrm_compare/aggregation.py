"""Convert pairwise comparisons to a reward for each answer.

Answers are numbered from 0. `preferences[one, other]` is the degree to which answer `one` is better than `other`, from
0 to 1. Each pair has one key, in one of its two orders.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from statistics import fmean

from resources_servers.genrm_compare.verdicts import HIGHEST, LOWEST, Opinion

Preferences = Mapping[tuple[int, int], float]

PRIOR_GAMES = 0.5
"""The number of prior games in which each answer ties with the rest of its group. They keep strengths finite."""
SMALLEST_STEP = 1e-8
MOST_STEPS = 500
DIGITS = 6
"""The number of decimals to which strengths are rounded, so that answers with equal results have equal strengths."""
TIEBREAKER = 0.5
"""The gap in points that the clearest ranking adds between equal scores. It is less than one step of a score."""


def bradley_terry(preferences: Preferences) -> dict[int, float]:
    """Return strengths with mean 0: answer i beats j with the probability 1 / (1 + exp(strength j - strength i)).

    They maximize the likelihood of the preferences and of the prior games. A preference counts as a partly won game.
    The algorithm is minorization-maximization: Hunter, "MM algorithms for generalized Bradley-Terry models" (2004).
    """
    answers = sorted({answer for pair in preferences for answer in pair})
    won = dict.fromkeys(answers, PRIOR_GAMES / 2)
    games = {frozenset(pair): PRIOR_GAMES / (len(answers) - 1) for pair in combinations(answers, 2)}
    for (one, other), preference in preferences.items():
        games[frozenset((one, other))] += 1
        won[one] += preference
        won[other] += 1 - preference
    rivals = {one: [(other, games[frozenset((one, other))]) for other in answers if other != one] for one in answers}
    odds = dict.fromkeys(answers, 1.0)
    for _ in range(MOST_STEPS):
        if _improve(odds, won, rivals) < SMALLEST_STEP:
            break
    strengths = {answer: math.log(value) for answer, value in odds.items()}
    mean = fmean(strengths.values()) if strengths else 0.0
    return {answer: round(strength - mean, DIGITS) for answer, strength in strengths.items()}


def _improve(odds: dict[int, float], won: Mapping[int, float], rivals: Mapping[int, list[tuple[int, float]]]) -> float:
    """Perform one iteration of Hunter's algorithm, and return the largest change of a strength."""
    largest = 0.0
    for answer, earlier in odds.items():
        odds[answer] = won[answer] / sum(count / (earlier + odds[rival]) for rival, count in rivals[answer])
        largest = max(largest, abs(math.log(odds[answer] / earlier)))
    return largest


def expected_wins(strengths: Mapping[int, float]) -> dict[int, float]:
    """Return each answer's mean probability of beating another answer. The mean over all answers is 1/2."""
    return {
        answer: fmean(_sigmoid(own - other) for rival, other in strengths.items() if rival != answer)
        for answer, own in strengths.items()
    }


def shares_won(preferences: Preferences) -> dict[int, float]:
    """Return, for each answer, the share of its pairs that it won. A tie counts as half a win."""
    results: defaultdict[int, list[float]] = defaultdict(list)
    for (one, other), preference in preferences.items():
        result = 0.5 if is_tie(preference) else float(preference > 0.5)
        results[one].append(result)
        results[other].append(1 - result)
    return {answer: fmean(each) for answer, each in results.items()}


def mean_scores(opinions: Iterable[Opinion]) -> dict[int, float]:
    """Return each answer's mean score, from 0 to 1.

    If both scores of a verdict are equal, the ranking moves them apart by at most half a point.
    """
    scores: defaultdict[int, list[float]] = defaultdict(list)
    for first, second, verdict in ((each.first, each.second, each.verdict) for each in opinions):
        lead = 0.0
        if verdict.score_1 == verdict.score_2:
            lead = TIEBREAKER * (verdict.preference - 0.5)
        scores[first].append(verdict.score_1 + lead)
        scores[second].append(verdict.score_2 - lead)
    return {answer: _from_zero_to_one(fmean(each)) for answer, each in scores.items()}


def is_tie(preference: float) -> bool:
    """Return whether neither answer is better. A tolerance is used, because the mean of verdicts is inexact."""
    return math.isclose(preference, 0.5)


def _from_zero_to_one(score: float) -> float:
    return min(1.0, max(0.0, (score - LOWEST) / (HIGHEST - LOWEST)))


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))
