"""Intervals and gates compared with known truth, in a thousand simulated pairs of runs each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from nemo_gym.evaluation.differences import PairedDifferences
from nemo_gym.evaluation.gates import ERROR, parse_gate
from nemo_gym.metrics.intervals import mean_interval

pytestmark = pytest.mark.slow

PAIRS = 1_000
ALLOWED = 0.02
"""The allowed distance of the coverage from 95 %, three times its standard error."""
Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def few_tasks(generator):
    offsets = generator.normal(0, 1, (8, 1))
    return offsets + generator.normal(0, 1, (8, 4)), offsets + 0.3 + generator.normal(0, 1, (8, 4))


def binary(tasks, repeats):
    def draw(generator):
        chances = 0.1 + 0.7 * generator.beta(0.5, 0.5, (tasks, 1))
        better = chances + generator.uniform(-0.1, 0.2, (tasks, 1))
        return generator.binomial(1, chances, (tasks, repeats)), generator.binomial(1, better, (tasks, repeats))

    return draw


def heavy_ties(generator):
    solved = generator.choice([0.0, 1.0], (200, 1)) * np.ones((1, 4))
    is_open = generator.random((200, 1)) < 0.15
    a, b = generator.binomial(1, 0.4, (200, 4)), generator.binomial(1, 0.6, (200, 4))
    return np.where(is_open, a, solved), np.where(is_open, b, solved)


def skewed(generator):
    gains = generator.exponential(1, (50, 1))
    return generator.normal(0, 0.1, (50, 4)), gains + generator.normal(0, 0.1, (50, 4))


def rare_regressions(generator):
    is_worse = generator.random((100, 1)) < 0.08
    return np.ones((100, 4)), np.where(is_worse, 0.0, np.ones((1, 4)))


DESIGNS: dict[str, tuple[Draw, float]] = {
    "few tasks": (few_tasks, 0.3),
    "many repeats": (binary(30, 32), 0.05),
    "one repeat": (binary(100, 1), 0.05),
    "heavy ties": (heavy_ties, 0.03),
    "skewed": (skewed, 1.0),
    "rare regressions": (rare_regressions, -0.08),
}


def differences_of(draw: Draw, generator: np.random.Generator) -> PairedDifferences:
    a, b = draw(generator)
    return PairedDifferences(b.mean(1) - a.mean(1), float(max(a.max(), b.max()) - min(a.min(), b.min())))


@cache
def simulated(draw: Draw) -> list[PairedDifferences]:
    generator = np.random.default_rng(16)
    return [differences_of(draw, generator) for _ in range(PAIRS)]


@pytest.mark.parametrize("name", DESIGNS)
def test_intervals_cover_the_truth(name):
    draw, truth = DESIGNS[name]
    bounds = [each.bounds() for each in simulated(draw)]
    covered = np.mean([low - 1e-12 <= truth <= high + 1e-12 for low, high in bounds])
    assert covered == pytest.approx(0.95, abs=ALLOWED)


@pytest.mark.parametrize(("tasks", "repeats"), [(100, 1), (40, 4), (30, 32)])
def test_intervals_of_one_run_cover_the_truth(tasks, repeats):
    generator, draw = np.random.default_rng(18), binary(tasks, repeats)
    runs = [mean_interval(dict(enumerate(draw(generator)[0].tolist()))) for _ in range(PAIRS)]
    assert np.mean([each.low <= 0.45 <= each.high for each in runs]) == pytest.approx(0.95, abs=ALLOWED)


@pytest.mark.parametrize("name", DESIGNS)
def test_gates_err_as_stated(name):
    draw, truth = DESIGNS[name]
    # At the limit itself, each decision is wrong for a difference just below or just above.
    for operator in (">=", "<="):
        gate = parse_gate(f"reward {operator} {truth}")
        verdicts = Counter(gate.verdict(each.bounds(1 - ERROR)) for each in simulated(draw))
        for wrong in ("holds", "violated"):
            assert verdicts[wrong] / PAIRS <= ERROR, (operator, verdicts)


def test_gates_decide_clear_cases():
    pairs = simulated(binary(400, 8))
    for limit, verdict in ((0.0, "holds"), (0.1, "violated"), (0.05, "undecided")):
        verdicts = Counter(parse_gate(f"reward >= {limit}").verdict(each.bounds(1 - ERROR)) for each in pairs)
        assert verdicts[verdict] / PAIRS >= 0.93, (limit, verdicts)


def test_several_gates_share_the_error():
    generator = np.random.default_rng(17)
    gate, wrong = parse_gate("reward >= 0.05"), 0
    for _ in range(PAIRS):
        family = [differences_of(binary(60, 4), generator) for _ in range(3)]
        wrong += any(gate.verdict(each.bounds(1 - ERROR / 3)) != "undecided" for each in family)
    # Both kinds of wrong decision together, each with half of the error.
    assert wrong / PAIRS <= ERROR + ALLOWED
