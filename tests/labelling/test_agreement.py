"""Kappas and their intervals, compared with statsmodels and with known truth."""

from __future__ import annotations

import random

import pytest

from nemo_gym.labelling.agreement import Pair, agreement, cohens_kappa, fleiss_kappa

LABELS = ("yes", "no")


def pairs_of(*cells: tuple[str, str, int]) -> list[Pair]:
    return [Pair("all", verdict, label) for verdict, label, count in cells for _ in range(count)]


def test_kappas_of_small_tables() -> None:
    # 20 of 25 pairs agree; 0.6 * 0.6 + 0.4 * 0.4 = 0.52 of them by chance.
    table = {("yes", "yes"): 12.5, ("yes", "no"): 2.5, ("no", "yes"): 2.5, ("no", "no"): 7.5}
    assert cohens_kappa(table) == pytest.approx((0.8 - 0.52) / 0.48)
    # One of three rollouts is rated equally; (2/3)² + (1/3)² = 5/9 by chance, over six verdicts.
    ratings = [["yes", "yes"], ["no", "yes"], ["yes", "no"]]
    assert fleiss_kappa(ratings) == pytest.approx((1 / 3 - 5 / 9) / (4 / 9))


@pytest.mark.slow
def test_cohens_kappa_agrees_with_statsmodels() -> None:
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = random.Random(1)
    for names in (LABELS, ("a", "b", "c")):
        table = [[rng.randint(0, 20) for _ in names] for _ in names]
        cells = {
            (one, other): table[row][column] for row, one in enumerate(names) for column, other in enumerate(names)
        }
        assert cohens_kappa(cells) == pytest.approx(inter_rater.cohens_kappa(table).kappa)


@pytest.mark.slow
def test_fleiss_kappa_agrees_with_statsmodels() -> None:
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = random.Random(2)
    ratings = [rng.choices(("a", "b", "c"), (5, 2, 1), k=5) for _ in range(40)]
    counts = [[verdicts.count(name) for name in ("a", "b", "c")] for verdicts in ratings]
    assert fleiss_kappa(ratings) == pytest.approx(inter_rater.fleiss_kappa(counts))


def test_kappa_of_equal_verdicts_is_not_defined() -> None:
    assert cohens_kappa({("yes", "yes"): 9}) is None
    assert fleiss_kappa([["yes", "yes"]] * 3) is None
    assert fleiss_kappa([]) is None


def test_one_stratum_has_jeffreys_interval() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = agreement(pairs_of(("yes", "yes", 45), ("yes", "no", 5)), {"all": 50}, LABELS)
    assert found.accuracy.value == 0.9
    low, high = stats.beta(45.5, 5.5).ppf([0.025, 0.975])
    assert (found.accuracy.low, found.accuracy.high) == pytest.approx((low, high), abs=0.01)


def test_perfect_agreement_keeps_an_interval() -> None:
    found = agreement(pairs_of(("yes", "yes", 10), ("no", "no", 10)), {"all": 20}, LABELS)
    assert (found.accuracy.value, found.kappa.value, found.accuracy.high, found.kappa.high) == (1.0, 1.0, 1.0, 1.0)
    assert found.accuracy.low < 0.95
    assert found.kappa.low < 0.9


def test_strata_are_weighted_by_their_size() -> None:
    pairs = [Pair("yes", "yes", "yes")] * 9 + [Pair("yes", "yes", "no")] + [Pair("no", "no", "no")] * 10
    found = agreement(pairs, {"yes": 900, "no": 100}, LABELS)
    assert found.accuracy.value == pytest.approx(0.91)
    graded, people = found.shares["yes"]
    assert (graded, people.value) == pytest.approx((0.9, 0.81))
    assert found.counts["yes", "no"] == 1


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    truth, draws, covered = 0.85, 200, 0
    for seed in range(draws):
        rng = random.Random(seed)
        pairs = [
            Pair(verdict, verdict, verdict if rng.random() < truth else "no" if verdict == "yes" else "yes")
            for verdict in LABELS
            for _ in range(25)
        ]
        found = agreement(pairs, {"yes": 700, "no": 300}, LABELS, seed=seed).accuracy
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / draws <= 0.99


def test_no_pairs_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one labelled rollout"):
        agreement([], {}, LABELS)
