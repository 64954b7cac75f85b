"""Measures of how well a grader's verdicts agree with people's labels, or with each other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import NamedTuple

DRAWS = 4_000
Table = Mapping[tuple[str, str], float]
"""The weight of each (verdict, label) pair, such as its share of the rollouts. The sum need not be 1."""


class Pair(NamedTuple):
    """The grader's verdict on one rollout, a person's label, and the stratum from which the rollout was sampled."""

    stratum: str
    verdict: str
    label: str


class Estimate(NamedTuple):
    """A value with the bounds of its 95 % interval. The value is None if it is undefined for the sample."""

    value: float | None
    low: float
    high: float


class Agreement(NamedTuple):
    """The agreement of verdicts with labels, estimated for the whole run from a labelled sample."""

    pairs: int
    counts: Mapping[tuple[str, str], int]
    """The number of times that each (verdict, label) pair occurs in the sample."""
    labels: tuple[str, ...]
    accuracy: Estimate
    """The share of the run's rollouts on which verdict and label agree."""
    kappa: Estimate
    """Cohen's kappa: the accuracy, corrected for agreement by chance."""
    shares: Mapping[str, tuple[float, Estimate]]
    """For each label, its share of the grader's verdicts, and its estimated share of people's labels."""


def agreement(pairs: Sequence[Pair], sizes: Mapping[str, int], labels: Sequence[str], *, seed: int = 0) -> Agreement:
    """Return the agreement of verdicts with labels. `sizes` is the number of rollouts per stratum, used as weights.

    The intervals are Bayesian. The prior is one observation per stratum, spread evenly over its possible (verdict,
    label) pairs. With one stratum and two labels, the interval of the accuracy is Jeffreys' interval. Raise
    `ValueError` if there are no pairs.
    """
    if not pairs:
        raise ValueError("agreement needs at least one labelled rollout")
    by_stratum: dict[str, Counter[tuple[str, str]]] = {}
    for pair in pairs:
        by_stratum.setdefault(pair.stratum, Counter())[pair.verdict, pair.label] += 1
    total = sum(sizes[stratum] for stratum in by_stratum)
    weights = {stratum: sizes[stratum] / total for stratum in by_stratum}
    table = _weighted(by_stratum, weights)
    rng = random.Random(f"agreement {seed}")
    priors = {stratum: _with_prior(counts, labels) for stratum, counts in by_stratum.items()}
    drawn = [_weighted({name: _drawn(alphas, rng) for name, alphas in priors.items()}, weights) for _ in range(DRAWS)]
    graded = {label: sum(share for (verdict, _), share in table.items() if verdict == label) for label in labels}
    return Agreement(
        len(pairs),
        Counter((pair.verdict, pair.label) for pair in pairs),
        tuple(labels),
        _estimate(accuracy_of(table), [accuracy_of(each) for each in drawn]),
        _estimate(cohens_kappa(table), [kappa for each in drawn if (kappa := cohens_kappa(each)) is not None]),
        {
            label: (graded[label], _estimate(_share(table, label), [_share(each, label) for each in drawn]))
            for label in labels
        },
    )


def accuracy_of(table: Table) -> float:
    """Return the share of pairs whose verdict and label are equal."""
    return sum(share for (verdict, label), share in table.items() if verdict == label) / sum(table.values())


def cohens_kappa(table: Table) -> float | None:
    """Return Cohen's kappa of a table of pairs, or None if all verdicts and all labels have the same value."""
    total = sum(table.values())
    verdicts: dict[str, float] = {}
    labels: dict[str, float] = {}
    for (verdict, label), share in table.items():
        verdicts[verdict] = verdicts.get(verdict, 0.0) + share / total
        labels[label] = labels.get(label, 0.0) + share / total
    by_chance = sum(share * labels.get(verdict, 0.0) for verdict, share in verdicts.items())
    return None if by_chance > 1 - 1e-12 else (accuracy_of(table) - by_chance) / (1 - by_chance)


def fleiss_kappa(ratings: Iterable[Sequence[str]]) -> float | None:
    """Return Fleiss' kappa of repeated verdicts. Every rollout must have the same number of verdicts, at least two.

    Return None if there are no rollouts, or if all verdicts of all rollouts have the same value.
    """
    counts: Counter[str] = Counter()
    agreeing, rollouts, times = 0.0, 0, 0
    for verdicts in ratings:
        own = Counter(verdicts)
        times = len(verdicts)
        agreeing += sum(count * (count - 1) for count in own.values()) / (times * (times - 1))
        counts += own
        rollouts += 1
    if not rollouts:
        return None
    by_chance = sum((count / (rollouts * times)) ** 2 for count in counts.values())
    return None if by_chance > 1 - 1e-12 else (agreeing / rollouts - by_chance) / (1 - by_chance)


def _weighted(by_stratum: Mapping[str, Table | Counter[tuple[str, str]]], weights: Mapping[str, float]) -> Table:
    table: dict[tuple[str, str], float] = {}
    for stratum, cells in by_stratum.items():
        size = sum(cells.values())
        for cell, count in cells.items():
            table[cell] = table.get(cell, 0.0) + weights[stratum] * count / size
    return table


def _with_prior(counts: Counter[tuple[str, str]], labels: Sequence[str]) -> dict[tuple[str, str], float]:
    verdicts = {verdict for verdict, _ in counts}
    prior = 1 / (len(labels) * len(verdicts))
    return {(verdict, label): counts[verdict, label] + prior for verdict in verdicts for label in labels}


def _drawn(alphas: Mapping[tuple[str, str], float], rng: random.Random) -> Table:
    """Draw weights whose shares have the Dirichlet distribution with these parameters."""
    return {cell: rng.gammavariate(alpha, 1.0) for cell, alpha in alphas.items()}


def _share(table: Table, label: str) -> float:
    return sum(share for (_, given), share in table.items() if given == label) / sum(table.values())


def _estimate(value: float | None, drawn: list[float]) -> Estimate:
    """Return a value with the 95 % interval of the draws. The interval is widened if it does not contain the value.

    The bounds are NaN if the value is undefined for every draw, because the only label is that of all verdicts.
    """
    ordered = sorted(drawn) or [nan]
    low, high = ordered[int(0.025 * len(ordered))], ordered[int(0.975 * len(ordered))]
    return Estimate(value, low, high) if value is None else Estimate(value, min(low, value), max(high, value))
