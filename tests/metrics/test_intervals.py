"""Confidence intervals of one run."""

from __future__ import annotations

from math import inf

import pytest

from nemo_gym.metrics.intervals import mean_interval, pass_at_k, pass_at_k_interval, wilson_interval
from nemo_gym.metrics.student import student_quantile
from tests.each_case import each_case


@each_case(("share", "degrees", "expected"), [(0.975, 1, 12.7062047), (0.975, 10, 2.2281389), (0.9, inf, 1.2815516)])
def test_quantiles_are_those_of_tables(share, degrees, expected):
    assert student_quantile(share, degrees) == pytest.approx(expected, abs=1e-6)


def test_single_answers_get_wilsons_interval():
    found = mean_interval({task: [float(task < 7)] for task in range(10)})
    assert found == wilson_interval(7, 10)
    assert (found.low, found.high) == (pytest.approx(0.39678, abs=1e-5), pytest.approx(0.89221, abs=1e-5))


def test_repeats_of_a_task_count_less():
    few = mean_interval({task: [float(task % 2)] for task in range(40)})
    alike = mean_interval({task: [float(task % 2)] * 10 for task in range(40)})
    unlike = mean_interval({task: [0.0, 1.0] * 5 for task in range(40)})
    assert alike.half_width == pytest.approx(few.half_width, rel=0.05)
    assert unlike.half_width < few.half_width / 2


def test_repeats_of_equal_answers_do_not_widen_the_interval():
    single, repeated = mean_interval({n: [0.0] for n in range(5)}), mean_interval({n: [0.0] * 4 for n in range(5)})
    assert (repeated.low, repeated.high) == (single.low, single.high) == pytest.approx((0, 0.4345), abs=0.0001)


@each_case(("reward", "repeats"), [(0.1, 1), (0.1, 8), (1 / 3, 3), (-0.7, 5), (2.3, 2)])
def test_equal_rewards_have_no_width(reward, repeats):
    found = mean_interval({task: [reward] * repeats for task in range(31)})
    assert (found.mean, found.low, found.high) == (reward, reward, reward)


def test_bounds_of_huge_rewards_are_infinite():
    assert mean_interval({"a": [1e200], "b": [0.5], "c": [3.0]})[1:3] == (-inf, inf)


def test_bounds_without_evidence_are_infinite():
    assert mean_interval({"only": [0.5, 0.7]})[1:3] == (-inf, inf)
    always = mean_interval({task: [1.0, 1.0] for task in range(5)})
    assert always.high == 1.0
    assert always.low < 0.7


def test_bounds_of_shares_are_shares():
    assert mean_interval({"a": [0.0], "b": [0.1], "c": [0.9]}).low == 0.0
    assert mean_interval({"a": [1.0], "b": [0.2], "c": [0.9]}).high == 1.0
    assert mean_interval({"a": [0.0], "b": [0.1], "c": [1.5]}).low < 0.0


def test_pass_at_k_counts_draws_without_replacement():
    assert pass_at_k([1.0, 0.0, 0.0, 0.0], 2) == pytest.approx(0.5)
    assert pass_at_k([0.25, 0.75, 0.5], 2) == 0.75
    found = pass_at_k_interval({"a": [1.0, 0.0, 0.0, 0.0], "b": [1.0, 1.0, 1.0, 0.0], "c": [0.0]}, 2)
    assert (found.mean, found.tasks, found.rollouts) == (pytest.approx(0.75), 2, 8)
    assert 0 <= found.low < found.mean < found.high <= 1


def test_pass_at_k_of_other_rewards_is_within_its_bounds():
    penalties = pass_at_k_interval({task: [reward] for task, reward in enumerate((-1.0, -1.0, 1.0, -1.0))}, 1)
    assert penalties.low < 0 < penalties.high
    scores = pass_at_k_interval({task: [reward, 0.0] for task, reward in enumerate((1.2, 2.9, 3.0, 0.8))}, 2)
    assert 1 < scores.mean < scores.high


@each_case(
    ("call", "problem"),
    [
        (lambda: mean_interval({"a": []}), "at least one rollout"),
        (lambda: pass_at_k_interval({"a": [1.0]}, 2), "no task has at least 2 rollouts, which pass@2 needs"),
        (lambda: wilson_interval(3, 2), "3 successes in 2 trials"),
        (lambda: mean_interval({"a": [1.0], "b": [0.3]}, level=95), "between 0 and 1"),
    ],
)
def test_impossible_intervals_are_rejected(call, problem):
    with pytest.raises(ValueError, match=problem):
        call()
