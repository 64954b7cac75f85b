"""The paired permutation test: how often a difference this large occurs by chance.

To simulate chance, the sign of each task's difference is flipped at random, as if A and B were swapped for that task.
"""

from __future__ import annotations

from math import log

from nemo_gym.evaluation.arrays import Floats, np
from nemo_gym.evaluation.resampling import DRAWS, DRAWS_AT_ONCE, SEED, support_of

EXACT_TASKS = 16
"""The maximum number of changed tasks for which all sign flips are enumerated instead of drawn at random."""
ROUNDING = 1e-9


def permutation_p_value(differences: Floats) -> float:
    """Return the two-sided p-value of the hypothesis that the mean difference is 0.

    The p-value is exact if few tasks changed, or if all changes have the same size.
    """
    changed = differences[differences != 0]
    if not len(changed):
        return 1.0
    sizes = np.abs(changed)
    if np.ptp(sizes) <= ROUNDING * sizes.max():
        return _of_equal_sizes(int((changed > 0).sum()), len(changed))
    observed = abs(changed.sum()) * (1 - ROUNDING)
    if len(changed) <= EXACT_TASKS:
        return float((np.abs(_all_flips(changed)) >= observed).mean())
    return (1 + int((np.abs(_random_flips(sizes)) >= observed).sum())) / (1 + DRAWS)


def _of_equal_sizes(won: int, changed: int) -> float:
    """Return the exact p-value of a sign test. For yes-or-no answers, this is McNemar's test."""
    few = min(won, changed - won)
    steps = np.log((changed - np.arange(few)) / (1 + np.arange(few)))
    logs = np.concatenate([[0.0], np.cumsum(steps)]) - changed * log(2)
    return min(1.0, 2 * float(np.exp(logs).sum()))


def _all_flips(differences: Floats) -> Floats:
    sums = np.zeros(1)
    for value in differences:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _random_flips(sizes: Floats) -> Floats:
    values, counts = support_of(sizes)
    generator = np.random.default_rng(SEED)
    chunks = [
        (2 * generator.binomial(counts, 0.5, (DRAWS_AT_ONCE, len(counts))) - counts) @ values
        for _ in range(DRAWS // DRAWS_AT_ONCE)
    ]
    return np.concatenate(chunks)
