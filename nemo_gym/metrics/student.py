"""Quantiles of Student's t distribution, in plain Python, because a run's summary must not need scipy."""

from __future__ import annotations

from functools import cache
from math import exp, inf, lgamma, log, log1p
from statistics import NormalDist

NEARLY_NORMAL = 1e7
"""With at least this many degrees of freedom, use the normal quantile, which is the same to seven digits."""
PRECISION = 1e-15
TERMS = 10_000
"""The maximum number of terms of the continued fraction. About sqrt(degrees of freedom) terms are needed."""


@cache
def student_quantile(share: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution at the probability `share`, or infinity if `degrees` is 0."""
    if not 0.5 <= share < 1:
        raise ValueError(f"the share must be at least 0.5 and below 1, not {share}")
    if share == 0.5:
        return 0.0
    if degrees <= 0:
        return inf
    if degrees >= NEARLY_NORMAL:
        return NormalDist().inv_cdf(share)
    low, high = 0.0, 1.0
    while student_cdf(high, degrees) < share:
        low, high = high, 2 * high
    while high - low > PRECISION * 10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, degrees) < share else (low, middle)
    return (low + high) / 2


def student_cdf(value: float, degrees: float) -> float:
    """Return the cumulative distribution function of Student's t distribution at `value`, which must be positive."""
    return 1 - _incomplete_beta(degrees / (degrees + value * value), value, degrees) / 2


def _incomplete_beta(x: float, value: float, degrees: float) -> float:
    """Return the regularized incomplete beta function at `x` for (degrees / 2, 1 / 2)."""
    a, b = degrees / 2, 0.5
    # Compute log(x) and log(1 - x) directly, because 1 - x loses digits if there are many degrees of freedom.
    log_x, log_rest = -log1p(value * value / degrees), log(value * value / (degrees + value * value))
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log_x + b * log_rest)
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(x, a, b) / a
    return 1 - front * _continued_fraction(exp(log_rest), b, a) / b


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    d = 1 / (1 - (a + b) * x / (a + 1))
    c, result = 1.0, d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            result *= d * c
        if abs(d * c - 1) < PRECISION:
            break
    return result


def two_sided_quantile(level: float, degrees: float) -> float:
    """Return half the width, in standard errors, of a confidence interval. `level` is a probability such as 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must be between 0 and 1, not {level}")
    return student_quantile((1 + level) / 2, degrees)
