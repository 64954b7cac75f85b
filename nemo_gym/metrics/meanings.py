"""The meaning of each metric of an agent, for the documentation and the viewer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

VALUE_METRICS: Mapping[str, str] = {
    "mean/FIELD": "the mean",
    "max/FIELD": "the largest value",
    "min/FIELD": "the smallest value",
    "median/FIELD": "the median",
    "std/FIELD": "the sample standard deviation; 0 for a single rollout",
    "pessimistic/mean/reward": "the mean reward, with 0 for each failed rollout",
    "ci95_low/METRIC": (
        "the lower end of the 95 % interval of the mean reward (`reward`) or of `pass@K` with the largest `K`"
    ),
    "ci95_high/METRIC": (
        "the upper end of the 95 % interval; tasks, not rollouts, are the independent samples, so there must be at "
        "least two tasks. Rewards that are all between 0 and 1 have an interval between 0 and 1"
    ),
}
"""Metrics of the scored rollouts. FIELD is any number or boolean in the verify response or in its token usage."""

SCORE_METRICS: Mapping[str, str] = {
    "pass@K/SCORE": (
        "the chance that one of `K` rollouts, drawn at random, is correct; for scores between 0 and 1, the best of "
        "the first `K`"
    ),
    "pass@1[avg-of-K]/SCORE": "the mean score of the first `K` rollouts",
    "majority@K/SCORE": "the score of the most frequent answer of the first `K` rollouts; ties are averaged",
    "pass@1[avg-of-K]/SCORE/std_dev_across_runs": (
        "the standard deviation between `K` runs; run `i` has the rollout `i` of each task"
    ),
    "pass@1[avg-of-K]/SCORE/std_err_across_runs": (
        "the standard deviation between `K` runs, divided by the square root of `K`"
    ),
    "pass@1[avg-of-K]/SCORE/avg_sample_std_dev": "the standard deviation within a task, averaged over the tasks",
    "per_sample_aggregate": "the mean score of each run, by score",
}
"""Metrics in percent. SCORE is `accuracy` unless the server defines its own scores. K ranges from 1 to the number of
rollouts per task."""

_PLACEHOLDERS = {"FIELD": ".+", "METRIC": ".+", "SCORE": "[^/]+", "K": "[0-9]+"}


def meaning_of(metric: str) -> str | None:
    """Return the meaning of a metric, with or without a subset prefix, or None for an environment's own metric."""
    for name in (metric, metric.partition("/")[2]):
        for pattern, meaning in _patterns():
            if found := pattern.fullmatch(name):
                return meaning.replace("`K`", found["K"]) if "K" in pattern.groupindex else meaning
    return None


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(re.sub(r"\b(FIELD|METRIC|SCORE|K)\b", _group, re.escape(name))), meaning)
        for name, meaning in (*VALUE_METRICS.items(), *SCORE_METRICS.items())
    ]


def _group(found: re.Match[str]) -> str:
    return f"(?P<{found[1]}>{_PLACEHOLDERS[found[1]]})"
