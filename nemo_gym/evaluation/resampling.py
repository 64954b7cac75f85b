"""The paired cluster bootstrap: how far the mean difference of resampled tasks is from the observed mean.

A draw resamples whole tasks, each with all its rollouts, so that repeats never count as independent observations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nemo_gym.evaluation.arrays import Floats, Integers, np

DRAWS = 10_000
SEED = 0
DRAWS_AT_ONCE = 1_000
TASKS_PER_VALUE = 10
"""If there are more tasks than this per distinct difference, each draw is a multinomial sample of the differences.

This is faster than drawing every task.
"""
MOST_VALUES = 256
"""If there are more than this many distinct differences, neighbouring values are merged to save time."""
NEGLIGIBLE = 1e-12
"""A variance below this share of the largest squared value is a rounding error."""


class Support(NamedTuple):
    """Distinct values in ascending order, and the number of tasks with each value."""

    values: Floats
    counts: Integers


def support_of(values: Floats) -> Support:
    """Return the distinct values. If there are too many, merge neighbouring values, but keep the mean and variance."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= MOST_VALUES:
        return Support(distinct, counts.astype(np.int64))
    edges = np.linspace(0, len(values), MOST_VALUES + 1).astype(np.int64)[:-1]
    sizes = np.diff(np.append(edges, len(values)))
    merged = np.add.reduceat(np.sort(values), edges) / sizes
    mean = values.mean()
    lost = np.sqrt(values.var() / np.average((merged - mean) ** 2, weights=sizes))
    return Support(mean + (merged - mean) * lost, sizes)


def distances(differences: Floats) -> Floats:
    """Return, in ascending order, how far each draw's mean is from the observed mean, in standard errors.

    Dividing by the draw's own standard error corrects for few tasks and for skewed differences. A draw of equal
    differences has an infinite distance, unless its mean is the observed mean.
    """
    centred = differences - differences.mean()
    negligible = NEGLIGIBLE * max(float((centred**2).max()), np.finfo(float).tiny)
    found = []
    for means, squares in _drawn(centred):
        variances = squares - means**2
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.abs(means) / np.sqrt(variances / (len(centred) - 1))
        ratios[variances <= negligible] = np.inf
        ratios[means**2 <= negligible] = 0.0
        found.append(ratios)
    return np.sort(np.concatenate(found))


def _drawn(values: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield chunks of draws: the mean of the values in each draw, and the mean of their squares."""
    generator, tasks = np.random.default_rng(SEED), len(values)
    support = support_of(values)
    draws_tasks = tasks <= TASKS_PER_VALUE * len(support.values)
    for _ in range(DRAWS // DRAWS_AT_ONCE):
        if draws_tasks:
            drawn = values[generator.integers(0, tasks, (DRAWS_AT_ONCE, tasks))]
            yield drawn.mean(1), (drawn**2).mean(1)
        else:
            shares = generator.multinomial(tasks, support.counts / tasks, DRAWS_AT_ONCE) / tasks
            yield shares @ support.values, shares @ support.values**2
