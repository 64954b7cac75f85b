"""The mean of paired differences with its confidence interval. Each task contributes one difference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

from nemo_gym.evaluation.arrays import Floats, np
from nemo_gym.evaluation.resampling import distances
from nemo_gym.metrics.student import two_sided_quantile

FEW_TASKS = 8
"""The bootstrap is not used for fewer tasks, because too many draws would consist of equal differences."""
FEW_OTHERS = 10
"""If most tasks have the same difference, the bootstrap needs this many tasks with another difference.

With fewer, many draws would contain only the usual difference.
"""
POWER = 0.8

Method = Literal["bootstrap", "student", "score"]


class Bounds(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifferences:
    """The differences, B minus A, of the tasks that are in both runs."""

    values: Floats
    span: float
    """The largest possible difference of a task."""

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @cached_property
    def method(self) -> Method:
        """The method that computes the interval.

        - `score` is used if every difference is 0 or the largest possible one, as with single yes-or-no answers. It is
          also used if most tasks have the same difference, and fewer than `FEW_OTHERS` tasks have another one. It adds
          one task won and one task lost (Bonett and Price), because otherwise the interval would be too narrow.
        - `student` is used for fewer than `FEW_TASKS` tasks.
        - `bootstrap`, the symmetric studentized cluster bootstrap, is used in all other cases.
        """
        distinct, counts = np.unique(self.values, return_counts=True)
        is_all_or_nothing = bool(np.all(np.isclose(np.abs(distinct[distinct != 0]), self.span)))
        tasks, usual = len(self.values), counts.max()
        if is_all_or_nothing or (tasks > 1 and usual > tasks / 2 and tasks - usual < FEW_OTHERS):
            return "score"
        return "student" if tasks < FEW_TASKS else "bootstrap"

    @cached_property
    def standard_error(self) -> float:
        """The standard error of the mean. It is infinite for a single task, unless the method is `score`."""
        if self.method == "score":
            adjusted = self._with_one_won_and_lost
            return float(adjusted.std() / sqrt(len(adjusted)))
        count = len(self.values)
        return float(self.values.std(ddof=1) / sqrt(count)) if count > 1 else inf

    def bounds(self, level: float = 0.95) -> Bounds:
        """Return the confidence interval of the mean."""
        if self.method == "score":
            centre = float(self._with_one_won_and_lost.mean())
            half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
            # Extend the interval to the observed mean, because the two added tasks shift its centre towards 0.
            # Clip the interval to the possible values.
            low, high = min(centre - half, self.mean), max(centre + half, self.mean)
            return Bounds(max(low, -self.span), min(high, self.span))
        half = self._quantile(level) * self.standard_error if self.standard_error else 0.0
        return Bounds(self.mean - half, self.mean + half)

    def detectable(self, level: float = 0.95) -> float:
        """Return the smallest true difference that a comparison of these tasks detects with probability `POWER`."""
        degrees = inf if self.method == "score" else len(self.values) - 1
        return (two_sided_quantile(level, degrees) + NormalDist().inv_cdf(POWER)) * self.standard_error

    def _quantile(self, level: float) -> float:
        if self.method == "student":
            return two_sided_quantile(level, len(self.values) - 1)
        place = min(ceil(level * (len(self._distances) + 1)), len(self._distances))
        return float(self._distances[place - 1])

    @cached_property
    def _distances(self) -> Floats:
        return distances(self.values)

    @property
    def _with_one_won_and_lost(self) -> Floats:
        return np.append(self.values, (self.span, -self.span))
