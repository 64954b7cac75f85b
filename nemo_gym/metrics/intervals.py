"""Confidence intervals of one run's means and pass rates. Plain Python, because a run's summary must not need numpy.

The rollouts of one task are correlated. The independent observations are therefore the tasks, not the rollouts.
The intervals describe the population of tasks from which a run's tasks are a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, inf, sqrt
from typing import Any, NamedTuple

from nemo_gym.metrics.student import two_sided_quantile

CI_LOW, CI_HIGH = "ci95_low/", "ci95_high/"
"""Prefixes of the metrics that are bounds of a 95 % interval. The bounds of pass@k are in percent, like pass@k."""

Values = Mapping[Any, Sequence[float]]
"""The values of each task's rollouts, keyed by any identifier of the task."""


class Interval(NamedTuple):
    """An estimate with its confidence interval, and the size of the sample.

    The bounds are infinite if the sample does not determine them, as with the rewards of a single task.
    """

    mean: float
    low: float
    high: float
    tasks: int
    rollouts: int

    @property
    def half_width(self) -> float:
        """The margin of error: half the width of the interval."""
        return (self.high - self.low) / 2


def mean_interval(values_by_task: Values, level: float = 0.95) -> Interval:
    """Return the mean over all rollouts with its confidence interval. Raise `ValueError` if there are no rollouts.

    If all values are 0 or 1, this is Wilson's interval. Its sample size is the number of independent rollouts with the
    same standard error, or the number of tasks if all values are equal. Otherwise, it is Student's t interval with
    cluster-robust standard errors. If all values are between 0 and 1, finite bounds are clipped to that range, because
    the mean cannot be outside it.
    """
    groups = [values for values in values_by_task.values() if values]
    if not groups:
        raise ValueError("an interval needs at least one rollout")
    rollouts = sum(map(len, groups))
    # Clip the mean, because rounding may move it out of the range of the values. Equal values must have no scatter.
    mean = min(max(sum(map(sum, groups)) / rollouts, min(map(min, groups))), max(map(max, groups)))
    deviations = [sum(value - mean for value in values) for values in groups]
    scatter = sum(deviation * deviation for deviation in deviations)
    count = len(groups)
    variance = scatter * count / (count - 1) / rollouts**2 if count > 1 else inf
    if all(value in (0.0, 1.0) for values in groups for value in values):
        return _of_shares(mean, variance, level, count, rollouts)
    half = two_sided_quantile(level, count - 1) * sqrt(variance)
    low, high = mean - half, mean + half
    if count > 1 and all(0 <= value <= 1 for values in groups for value in values):
        low, high = max(low, 0.0), min(high, 1.0)
    return Interval(mean, low, high, count, rollouts)


def wilson_interval(successes: float, trials: int, level: float = 0.95) -> Interval:
    """Return the success rate of independent trials with its Wilson score interval."""
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"{successes} successes in {trials} trials: expected at least 1 trial, and 0 to {trials} successes"
        )
    low, high = _wilson(successes / trials, trials, two_sided_quantile(level, inf))
    return Interval(successes / trials, low, high, trials, trials)


def pass_at_k_interval(values_by_task: Values, k: int, level: float = 0.95) -> Interval:
    """Return pass@k with its confidence interval, over the tasks with at least `k` rollouts.

    If all rewards are between 0 and 1, so are the bounds. Raise `ValueError` if there are no such tasks.
    """
    groups = [values for values in values_by_task.values() if len(values) >= k]
    if not groups:
        raise ValueError(f"no task has at least {k} rollouts, which pass@{k} needs")
    chances = {task: [pass_at_k(values, k)] for task, values in enumerate(groups)}
    found = mean_interval(chances, level)._replace(rollouts=sum(map(len, groups)))
    if any(not 0 <= value <= 1 for values in groups for value in values):
        return found
    return found._replace(low=max(found.low, 0.0), high=min(found.high, 1.0))


def pass_at_k(values: Sequence[float], k: int) -> float:
    """Return the chance that `k` of these rollouts, drawn at random, include a reward of 1.

    If the rewards are not all 0 or 1, return the best of the first `k`, as the metric `pass@k` does.
    """
    if any(value not in (0.0, 1.0) for value in values):
        return max(values[:k])
    wrong = sum(value == 0.0 for value in values)
    return 1 - comb(wrong, k) / comb(len(values), k)


def _of_shares(mean: float, variance: float, level: float, tasks: int, rollouts: int) -> Interval:
    if tasks == rollouts:
        return wilson_interval(mean * rollouts, rollouts, level)
    # If all values are equal, they do not show how strongly the rollouts of a task are correlated. Each task then
    # counts as one rollout, and no variance is estimated.
    independent, degrees = float(tasks), inf
    if 0 < mean < 1:
        spread = mean * (1 - mean)
        independent, degrees = max(spread / max(variance, spread / rollouts), 1.0), max(tasks - 1, 1)
    low, high = _wilson(mean, independent, two_sided_quantile(level, degrees))
    return Interval(mean, low, high, tasks, rollouts)


def _wilson(mean: float, trials: float, quantile: float) -> tuple[float, float]:
    share = quantile**2 / trials
    centre = (mean + share / 2) / (1 + share)
    half = quantile * sqrt(mean * (1 - mean) / trials + share / (4 * trials)) / (1 + share)
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))
