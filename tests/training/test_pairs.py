"""Tests of preference pairs: which ones are made, and why a rollout is not in any."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.training.dataset import paired
from tests.each_case import each_case

REWARDS = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), min_size=1, max_size=8)


@each_case(
    ("rewards", "limit", "settings", "pairs"),
    [
        ([0.0, 1.0, 0.5], "best_worst", {}, [(1, 0)]),
        ([0.0, 1.0, 0.5], "all", {}, [(1, 0), (1, 2), (2, 0)]),
        ([0.0, 1.0, 0.5], 2, {}, [(1, 0), (1, 2)]),
        ([1.0, 1.0, 0.0, 0.0], 2, {}, [(0, 3), (1, 2)]),
        ([1.0, 0.0, 0.0, 0.0], 3, {}, [(0, 3), (0, 2), (0, 1)]),
        ([0.3, 0.1], 5, {"min_difference": 0.2}, [(0, 1)]),
        ([0.3, 0.1], "all", {"min_difference": 0.3}, []),
        ([0.3, 0.1, 0.0], "all", {"min_reward": 0.2}, [(0, 2), (0, 1)]),
        ([0.5, 0.5], "all", {}, []),
        ([1.0], "all", {}, []),
    ],
)
def test_largest_differences_are_paired_first(rewards, limit, settings, pairs):
    assert [tuple(pair) for pair in paired(rewards, limit, **settings).pairs] == pairs


@each_case(
    ("rewards", "limit", "settings", "unused"),
    [
        ([1.0], "all", {}, {0: "only rollout of its prompt"}),
        ([0.5, 0.5], "all", {}, {0: "tie", 1: "tie"}),
        ([0.0, 1.0, 0.5], "best_worst", {}, {2: "more than pairs"}),
        ([0.0, 1.0, 0.9], "all", {"min_difference": 1.0}, {2: "below min_difference"}),
        ([0.1, 0.2], "all", {"min_reward": 0.5}, dict.fromkeys([0, 1], "chosen side below min_reward")),
    ],
)
def test_every_unused_rollout_has_a_reason(rewards, limit, settings, unused):
    assert paired(rewards, limit, **settings).unused == unused


@given(REWARDS, st.sampled_from(["all", "best_worst", 1, 2, 3, 100]), st.sampled_from([0.0, 0.2, 0.5]))
def test_pairs_keep_their_promises(rewards, limit, min_difference):
    pairing = paired(rewards, limit, min_reward=0.3, min_difference=min_difference)
    differences = [rewards[chosen] - rewards[rejected] for chosen, rejected in pairing.pairs]
    assert all(difference > 0 and difference >= min_difference - 1e-9 for difference in differences)
    assert all(rewards[pair.chosen] >= 0.3 for pair in pairing.pairs)
    assert len({*pairing.pairs}) == len(pairing.pairs)
    in_pairs = {place for pair in pairing.pairs for place in pair}
    assert sorted([*in_pairs, *pairing.unused]) == list(range(len(rewards)))
    # A smaller number gives the largest differences of all.
    everything = paired(rewards, "all", min_reward=0.3, min_difference=min_difference).pairs
    most = {"all": len(everything), "best_worst": 1}.get(limit, limit)
    largest = [rewards[chosen] - rewards[rejected] for chosen, rejected in everything][:most]
    assert differences == largest
