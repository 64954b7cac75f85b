"""Comparisons become rewards and strengths; a simulated judge of known strengths shows how well."""

import math
import random
from functools import cache
from statistics import fmean

import pytest

from resources_servers.genrm_compare.aggregation import (
    PRIOR_GAMES,
    bradley_terry,
    expected_wins,
    mean_scores,
    shares_won,
)
from resources_servers.genrm_compare.comparing import pairs_of
from resources_servers.genrm_compare.verdicts import Opinion, Verdict, mean_preference

GROUPS, SIZE = 200, 8
SPREAD = 1.5
"""The standard deviation of the strengths, in logits."""


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


class NoisyJudge:
    """A judge whose verdicts are Bradley-Terry games between known strengths, with a bonus for side 1."""

    def __init__(self, rng, strengths, bonus=0.0):
        self._rng, self._strengths, self._bonus = rng, strengths, bonus

    def opinion(self, first, second):
        lead = self._strengths[first] - self._strengths[second] + self._bonus
        ranking = 1 if self._rng.random() < sigmoid(lead) else 6
        return Opinion(first, second, Verdict(3, 3, ranking))

    def preferences(self, pairs, judges=1, *, swaps=True):
        """Return preferences as the server computes them."""
        found = {}
        for one, other in pairs:
            orders = ([(one, other), (other, one)] if swaps else [(one, other)]) * judges
            found[one, other] = mean_preference([self.opinion(*order) for order in orders], one)
        return found


@cache
def simulated(neighbours=None, judges=1):
    """Return many groups as their true strengths, the judge's preferences and the strengths found."""
    rng = random.Random(1)
    groups = []
    for _ in range(GROUPS):
        drawn = [rng.gauss(0, SPREAD) for _ in range(SIZE)]
        true = [each - fmean(drawn) for each in drawn]
        preferences = NoisyJudge(rng, true).preferences(pairs_of(SIZE, neighbours), judges)
        groups.append((true, preferences, bradley_terry(preferences)))
    return groups


def order_agreement(true, found):
    """Return the share of pairs that two lists put into the same order; a tie is half a pair."""
    pairs = [(one, other) for one in range(len(true)) for other in range(one)]
    signs = ((true[one] - true[other]) * (found[one] - found[other]) for one, other in pairs)
    return fmean(0.5 if sign == 0 else float(sign > 0) for sign in signs)


def mean_agreement(groups):
    return fmean(order_agreement(true, found) for true, _, found in groups)


@pytest.mark.parametrize(
    ("neighbours", "judges", "least"), [(None, 8, 0.94), (None, 1, 0.85), (2, 1, 0.78), (1, 1, 0.72)]
)
def test_order_of_known_strengths_is_recovered(neighbours, judges, least):
    groups = simulated(neighbours, judges)
    assert mean_agreement(groups) > least
    assert fmean(order_agreement(true, shares_won(preferences)) for true, preferences, _ in groups) > least - 0.03


@pytest.mark.parametrize(("judges", "error", "slope"), [(1, 0.75, 1.0), (8, 0.35, 0.87)])
def test_known_strengths_are_recovered(judges, error, slope):
    errors, slopes = [], []
    for true, _, found in simulated(judges=judges):
        errors += [found[number] - strength for number, strength in enumerate(true)]
        slopes.append(sum(found[n] * each for n, each in enumerate(true)) / sum(each * each for each in true))
    assert math.sqrt(fmean(each * each for each in errors)) < error
    assert fmean(slopes) == pytest.approx(slope, abs=0.07)


def test_swapping_removes_a_position_bias():
    rng = random.Random(2)
    always_first = [(0, other) for other in range(1, SIZE)]
    judges = [NoisyJudge(rng, [0.0] * SIZE, bonus=2.0) for _ in range(GROUPS)]
    rewards = {
        swaps: fmean(expected_wins(bradley_terry(judge.preferences(always_first, swaps=swaps)))[0] for judge in judges)
        for swaps in (False, True)
    }
    assert rewards[False] > 0.75
    assert rewards[True] == pytest.approx(0.5, abs=0.02)


def test_always_preferring_a_side_rewards_all_equally():
    for neighbours in (None, 1):
        preferences = NoisyJudge(random.Random(3), range(SIZE), bonus=1e3).preferences(pairs_of(SIZE, neighbours))
        assert set(preferences.values()) == {0.5}
        assert list(expected_wins(bradley_terry(preferences)).values()) == pytest.approx([0.5] * SIZE)
        assert set(shares_won(preferences).values()) == {0.5}


def test_rewards_are_between_zero_and_one_with_mean_half():
    for true, preferences, found in simulated():
        for rewards in (expected_wins(found), shares_won(preferences)):
            assert all(0 <= reward <= 1 for reward in rewards.values())
            assert fmean(rewards.values()) == pytest.approx(0.5)
            assert len(rewards) == len(true)


def test_unbeaten_answer_has_finite_strength():
    strengths = bradley_terry({(0, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0})
    assert strengths[0] == pytest.approx(-strengths[2], abs=1e-3)
    assert strengths[1] == pytest.approx(0, abs=1e-3)
    assert 0.5 < strengths[0] < 3


def test_strengths_solve_the_likelihood_equations():
    _, preferences, found = simulated()[0]
    prior = PRIOR_GAMES / (SIZE - 1)
    for answer, own in found.items():
        won = PRIOR_GAMES / 2 + sum(
            value if one == answer else 1 - value
            for (one, other), value in preferences.items()
            if answer in (one, other)
        )
        expected = sum((1 + prior) * sigmoid(own - other) for rival, other in found.items() if rival != answer)
        assert expected == pytest.approx(won, abs=1e-3)


def test_unconnected_groups_are_compared_through_the_prior():
    strengths = bradley_terry({(0, 1): 1.0, (2, 3): 1.0})
    assert strengths[0] == pytest.approx(strengths[2], abs=1e-3)
    assert strengths[1] == pytest.approx(strengths[3], abs=1e-3)
    assert strengths[0] > 0.5 > strengths[1]


def test_large_ordered_group_keeps_its_order():
    strengths = bradley_terry({(one, other): 1.0 for one in range(32) for other in range(one + 1, 32)})
    assert sorted(strengths, key=strengths.__getitem__, reverse=True) == list(range(32))
    assert max(map(abs, strengths.values())) < 20


def test_nothing_judged_gives_no_rewards():
    assert bradley_terry({}) == expected_wins({}) == shares_won({}) == mean_scores([]) == {}


def test_tie_is_half_a_win():
    assert shares_won({(0, 1): 0.5, (0, 2): 0.8, (1, 2): 0.1 + 0.2 + 0.2}) == {0: 0.75, 1: 0.5, 2: 0.25}


def test_scores_are_means_from_zero_to_one():
    opinions = [Opinion(0, 1, Verdict(5, 1, 1)), Opinion(1, 0, Verdict(3, 4, 5))]
    assert mean_scores(opinions) == {0: 0.875, 1: 0.25}


def test_ranking_decides_between_equal_scores():
    def scores(ranking):
        return mean_scores([Opinion(0, 1, Verdict(3, 3, ranking))])

    assert scores(1) == {0: pytest.approx(0.5625), 1: pytest.approx(0.4375)}
    assert scores(4)[0] < scores(4)[1] < scores(6)[1]
    assert mean_scores([Opinion(0, 1, Verdict(5, 5, 1))])[0] == 1.0


def test_pairs_occur_once_and_balance_sides():
    for count in range(2, 12):
        for neighbours in (None, 1, 2, 3, 100):
            pairs = pairs_of(count, neighbours)
            assert len({frozenset(pair) for pair in pairs}) == len(pairs)
            assert {number for pair in pairs for number in pair} == set(range(count))
            firsts = [sum(one == number for one, _ in pairs) for number in range(count)]
            assert max(firsts) - min(firsts) <= 1
    assert len(pairs_of(8, None)) == 28
    assert len(pairs_of(8, 1)) == 8
    assert len(pairs_of(8, 2)) == 16
