"""Intervals, powers and tests compared with those of scipy and statsmodels, whose imports take seconds."""

from __future__ import annotations

import numpy as np
import pytest

from nemo_gym.evaluation.differences import PairedDifferences
from nemo_gym.evaluation.permutation import permutation_p_value
from nemo_gym.metrics.intervals import mean_interval, wilson_interval
from nemo_gym.metrics.student import student_quantile
from tests.each_case import each_case

pytestmark = pytest.mark.slow

UNEVEN = {"a": [0.2, 0.9, 0.4], "b": [0.1], "c": [0.8, 0.7], "d": [0.5, 0.5, 0.6, 0.3], "e": [1.0, 0.9]}
GENERATOR = np.random.default_rng(5)
MANY = GENERATOR.normal(0.2, 1, 400)
SOME = GENERATOR.normal(0.4, 1, 12)


@each_case("share", [0.5, 0.6, 0.8, 0.9, 0.975, 0.995, 0.99999])
def test_quantiles_are_those_of_scipy(share):
    from scipy.stats import t

    for degrees in (1, 2, 3.5, 10, 29, 100, 99_999, 1e8):
        assert student_quantile(share, degrees) == pytest.approx(t.ppf(share, degrees), rel=1e-7, abs=1e-12)


@each_case(("successes", "trials"), [(0, 5), (7, 10), (10, 10), (493, 1000)])
def test_wilson_interval_is_that_of_statsmodels(successes, trials):
    from statsmodels.stats.proportion import proportion_confint

    for level in (0.9, 0.95, 0.99):
        found = wilson_interval(successes, trials, level)
        expected = proportion_confint(successes, trials, alpha=1 - level, method="wilson")
        assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)


def test_uneven_repeats_get_cluster_robust_errors():
    import statsmodels.api as sm

    values = [value for each in UNEVEN.values() for value in each]
    groups = [number for number, each in enumerate(UNEVEN.values()) for _ in each]
    fitted = sm.OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    found = mean_interval(UNEVEN)
    assert (found.low, found.high) == pytest.approx(tuple(fitted.conf_int()[0]), abs=1e-6)
    assert (found.mean, found.tasks, found.rollouts) == (pytest.approx(np.mean(values)), 5, 12)


def test_single_repeats_get_the_usual_intervals():
    from scipy.stats import ttest_1samp

    numbers = [0.1, 0.7, 0.4, 0.9, 0.3]
    expected = ttest_1samp(numbers, 0).confidence_interval()
    assert mean_interval({task: [value] for task, value in enumerate(numbers)})[1:3] == pytest.approx(tuple(expected))
    assert mean_interval({task: [float(task < 7)] for task in range(10)}) == wilson_interval(7, 10)


def test_few_tasks_get_students_interval():
    from scipy.stats import ttest_1samp

    few = PairedDifferences(SOME[:6], span=4.0)
    assert few.method == "student"
    assert few.bounds() == pytest.approx(tuple(ttest_1samp(SOME[:6], 0).confidence_interval()))


def test_many_tasks_get_the_bootstrap():
    from scipy.stats import bootstrap

    many = PairedDifferences(MANY, span=8.0)
    low, high = bootstrap((MANY,), np.mean, n_resamples=5000, rng=np.random.default_rng(1)).confidence_interval
    assert many.method == "bootstrap"
    assert many.bounds() == pytest.approx((low, high), abs=(high - low) / 20)
    assert many.bounds() == PairedDifferences(MANY, span=8.0).bounds()


def test_detectable_difference_is_that_of_statsmodels():
    from statsmodels.stats.power import TTestPower

    expected = TTestPower().solve_power(nobs=len(MANY), alpha=0.05, power=0.8) * MANY.std(ddof=1)
    assert PairedDifferences(MANY, span=8.0).detectable() == pytest.approx(expected, rel=0.01)


def test_few_changed_tasks_are_tested_exactly():
    from scipy.stats import permutation_test

    expected = permutation_test((SOME, np.zeros(12)), lambda a, b: np.mean(a - b), permutation_type="samples")
    assert permutation_p_value(np.append(SOME, np.zeros(50))) == pytest.approx(expected.pvalue)


def test_yes_or_no_differences_get_mcnemars_test():
    from statsmodels.stats.contingency_tables import mcnemar

    for won, lost in ((9, 3), (5, 5), (400, 450), (1, 0)):
        values = np.concatenate([np.ones(won), -np.ones(lost), np.zeros(100)])
        assert permutation_p_value(values) == pytest.approx(mcnemar([[0, won], [lost, 0]], exact=True).pvalue)


def test_many_changed_tasks_are_tested_by_drawing():
    from scipy.stats import ttest_1samp

    assert permutation_p_value(MANY[:100]) == pytest.approx(ttest_1samp(MANY[:100], 0).pvalue, abs=0.01)
    assert permutation_p_value(np.zeros(10)) == 1.0
