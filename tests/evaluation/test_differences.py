"""Paired differences: their intervals and the permutation test."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from nemo_gym.evaluation.differences import PairedDifferences
from nemo_gym.evaluation.permutation import permutation_p_value
from nemo_gym.evaluation.resampling import MOST_VALUES, support_of
from nemo_gym.evaluation.tasks import noise_floor

MANY = np.random.default_rng(5).normal(0.2, 1, 100)


def test_the_number_of_tasks_chooses_the_method():
    assert PairedDifferences(MANY[:7], span=8.0).method == "student"
    assert PairedDifferences(MANY[:8], span=8.0).method == "bootstrap"
    assert PairedDifferences(np.round(MANY[:8] > 0), span=1.0).method == "score"
    mostly_equal = np.concatenate([np.full(30, -0.5), MANY[:9]])
    assert PairedDifferences(mostly_equal, span=8.0).method == "score"
    assert PairedDifferences(np.append(mostly_equal, 0.1), span=8.0).method == "bootstrap"


def test_draws_are_the_same_each_time():
    first, again = (PairedDifferences(MANY, span=8.0) for _ in range(2))
    assert first.bounds() == again.bounds()
    low, high = first.bounds()
    assert high - low == pytest.approx(2 * 1.98 * MANY.std(ddof=1) / 10, rel=0.1)


def test_large_runs_draw_counts_of_differences():
    values = np.repeat([-0.5, 0.0, 0.25, 1.0], [200, 1000, 500, 100])
    low, high = PairedDifferences(values, span=1.0).bounds()
    half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=half / 20)


def test_few_changes_enumerate_all_signs():
    assert permutation_p_value(np.array([1.0, 2.0, 3.0, 0.0])) == 0.25
    assert permutation_p_value(np.array([1.0, 2.0, -3.0])) == 1.0
    assert permutation_p_value(np.zeros(10)) == 1.0
    assert permutation_p_value(MANY - MANY.mean() + 0.4) < 0.01


def test_no_change_is_not_certainty():
    unchanged = PairedDifferences(np.zeros(300), span=1.0)
    assert unchanged.method == "score"
    assert unchanged.bounds() == pytest.approx((-0.0092, 0.0092), abs=2e-4)


def test_yes_or_no_differences_follow_bonett_and_price():
    won, lost, tasks = 15, 4, 100
    values = np.concatenate([np.ones(won), -np.ones(lost), np.zeros(tasks - won - lost)])
    a, b = (won + 1) / (tasks + 2), (lost + 1) / (tasks + 2)
    half = 1.959964 * np.sqrt((a + b - (a - b) ** 2) / (tasks + 2))
    assert PairedDifferences(values, span=1.0).bounds() == pytest.approx((a - b - half, a - b + half), abs=1e-6)


def test_a_single_task_has_unknown_bounds():
    single = PairedDifferences(np.array([0.25]), span=1.0)
    assert single.method == "student"
    assert single.bounds() == (-inf, inf)
    assert single.detectable() == inf


def test_merged_values_keep_mean_and_variance():
    values = np.random.default_rng(2).exponential(1, 5000)
    merged = support_of(values)
    assert len(merged.values) == MOST_VALUES
    assert np.average(merged.values, weights=merged.counts) == pytest.approx(values.mean())
    spread = np.average((merged.values - values.mean()) ** 2, weights=merged.counts)
    assert spread == pytest.approx(values.var())


def test_noise_is_unknown_without_repeats():
    assert noise_floor(None, 0.1) is None
    assert noise_floor(0.0001, 0.0003) == pytest.approx(1.96 * 0.02, abs=1e-4)
