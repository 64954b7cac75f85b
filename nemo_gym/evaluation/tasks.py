"""A metric's value for each task, computed from sums over the task's rollouts."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from nemo_gym.evaluation.arrays import Floats, Integers, np
from nemo_gym.evaluation.scores import REWARD, AgentScores

PASS_AT = "pass@"


class TaskValues(NamedTuple):
    """The value of a metric for each task. It is NaN for a task that does not have the metric."""

    values: Floats
    variance: float | None
    """The variance of the mean of `values` over repeated runs of the same tasks. None if it is unknown."""


def task_values(scores: AgentScores, metric: str, places: Integers, *, failed_as_zero: bool) -> TaskValues | None:
    """Return the metric of the tasks at these indices, or None if the rollouts do not have the metric.

    The metric is either a numeric field, which is averaged over a task's rollouts, or `pass@<k>`.
    """
    if metric in scores.fields:
        return mean_values(scores, metric, places, failed_as_zero=failed_as_zero)
    k = k_of(metric)
    if k is None or not scores.fields[REWARD].is_binary:
        return None
    return TaskValues(_chances(scores, k, places, failed_as_zero=failed_as_zero), None)


def mean_values(scores: AgentScores, name: str, places: Integers, *, failed_as_zero: bool = False) -> TaskValues:
    """Return the mean of a numeric field for each task. `places` are the tasks' indices."""
    field = scores.fields[name]
    counts, totals, squares = field.counts[places], field.totals[places], field.squares[places]
    if failed_as_zero:
        counts = counts + scores.failed[places]
    with np.errstate(divide="ignore", invalid="ignore"):
        return TaskValues(totals / counts, _variance_of_mean(counts, totals, squares))


def k_of(metric: str) -> int | None:
    """Return the k of the metric `pass@<k>`, or None for any other metric."""
    k = metric.removeprefix(PASS_AT)
    return int(k) if metric.startswith(PASS_AT) and k.isdecimal() and int(k) else None


def usual_repeats(scores: AgentScores) -> int:
    """Return the number of rollouts, scored or failed, that most tasks have."""
    return int(np.bincount(scores.fields[REWARD].counts + scores.failed).argmax())


def most_repeats(scores: AgentScores) -> int:
    """Return the largest number of rollouts, scored or failed, that a task has."""
    return int((scores.fields[REWARD].counts + scores.failed).max())


def noise_floor(a: float | None, b: float | None) -> float | None:
    """Return the difference in mean that two runs of equal models exceed in only 5 % of all cases.

    `a` and `b` are the variances of the means. Return None if one of the variances is unknown.
    """
    return None if a is None or b is None else NormalDist().inv_cdf(0.975) * sqrt(a + b)


def _variance_of_mean(counts: Integers, totals: Floats, squares: Floats) -> float | None:
    repeated = counts >= 2
    if not repeated.any():
        return None
    n = counts[repeated]
    within = np.maximum(squares[repeated] - totals[repeated] ** 2 / n, 0) / (n - 1)
    known = counts[counts >= 1]
    return float(within.mean() * (1 / known).mean() / len(known))


def _chances(scores: AgentScores, k: int, places: Integers, *, failed_as_zero: bool) -> Floats:
    """Return 1 - C(wrong, k) / C(n, k) for each task. The value is NaN if the task has fewer than k rollouts."""
    counts = scores.fields[REWARD].counts[places]
    if failed_as_zero:
        counts = counts + scores.failed[places]
    wrong = counts - scores.fields[REWARD].totals[places]
    missed = np.ones(len(places))
    with np.errstate(divide="ignore", invalid="ignore"):
        for drawn in range(k):
            missed *= np.maximum(wrong - drawn, 0) / (counts - drawn)
    return np.where(counts >= k, 1 - missed, np.nan)
