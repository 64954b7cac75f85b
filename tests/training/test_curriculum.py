"""A curriculum: shares, rests, priorities, equal rows for equal reports, and a state that continues."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.errors import DataError, UsageError
from nemo_gym.training import Curriculum, Group, Rollout
from tests.each_case import each_case

ROWS = [{"task": number} for number in range(40)]


def group_of(row, *rewards):
    rollouts = tuple(Rollout({}, reward, None) for reward in rewards)
    return Group(row, rollouts, 0)


def rewards_of(row, rng):
    """Return the rewards of a policy that solves a quarter of the tasks always, and a quarter never."""
    chance = {0: 0.0, 1: 0.5, 2: 0.5, 3: 1.0}[row["task"] % 4]
    return [float(rng.random() < chance) for _ in range(8)]


def played(source, draws, seed=0, delay=0):
    """Draw rows, and report each group `delay` draws later. Return the numbers of the tasks."""
    rng, drawn = random.Random(seed), []
    pending = []
    for row in islice(source, draws):
        drawn.append(row["task"])
        pending.append(row)
        if len(pending) > delay:
            done = pending.pop(0)
            source.report(group_of(done, *rewards_of(done, rng)))
    return drawn


def test_every_task_is_tried_once_before_any_comes_again():
    source = Curriculum(ROWS, new=1.0, rest=1000)
    assert sorted(row["task"] for row in islice(source, len(ROWS))) == list(range(len(ROWS)))


def test_tasks_that_teach_come_most_often():
    drawn = Counter(number % 4 for number in played(Curriculum(ROWS, rest=50), 2000))
    assert drawn[1] + drawn[2] > 4 * (drawn[0] + drawn[3])
    # Those that are always or never solved are tried again.
    assert drawn[0] > 10
    assert drawn[3] > 10


def test_rest_of_a_task_becomes_longer():
    source, tries = Curriculum(ROWS, rest=10, new=1.0), []
    for draw, row in enumerate(islice(source, 400)):
        flat = row["task"] == 0
        tries += [draw] if flat else []
        source.report(group_of(row, *([0.0, 0.0] if flat else [0.0, 1.0])))
    rests = [later - earlier for earlier, later in pairwise(tries)]
    assert [rest >= 10 * 2**number for number, rest in enumerate(rests)] == [True] * len(rests)
    assert len(rests) >= 3


def test_states_are_counted():
    source = Curriculum(ROWS)
    for number, rewards in enumerate([(0, 1), (1, 1), (0, 0), (0.5, 0.5)]):
        source.report(group_of(ROWS[number], *rewards))
    # A group whose rollouts have all failed, and a row of another source, say nothing.
    source.report(group_of(ROWS[9]))
    source.report(group_of({"task": "unknown"}, 0, 1))
    assert source.counts == {"mixed": 1, "solved": 1, "unsolved": 2, "new": 36}


def test_task_that_no_longer_teaches_leaves_the_pool():
    source = Curriculum(ROWS[:2], rest=100, new=0.5)
    source.report(group_of(ROWS[0], 0, 1))
    source.report(group_of(ROWS[1], 0, 1))
    source.report(group_of(ROWS[1], 1, 1))
    assert {row["task"] for row in islice(source, 50)} == {0}


def test_higher_priority_comes_earlier_and_more_often():
    source = Curriculum(ROWS, priority=lambda row: 50.0 if row["task"] < 10 else 1.0, new=1.0)
    first = [row["task"] for row in islice(source, 10)]
    assert sum(number < 10 for number in first) >= 7
    for row in ROWS:
        source.report(group_of(row, 0, 1))
    drawn = Counter(row["task"] < 10 for row in islice(source, 500))
    assert drawn[True] > 5 * drawn[False]


@given(st.integers(0, 100), st.integers(0, 30), st.integers(1, 300))
def test_same_seed_and_reports_give_the_same_rows(seed, delay, draws):
    first, second = (played(Curriculum(ROWS, seed=seed, rest=20), draws, seed, delay) for _ in range(2))
    assert first == second


@given(st.integers(0, 300))
def test_state_continues_with_the_same_rows(draws):
    source = Curriculum(ROWS, rest=20)
    played(source, draws)
    saved = orjson.loads(orjson.dumps(source.state_dict()))
    again = Curriculum(ROWS, rest=20, seed=99)
    again.load_state_dict(saved)
    assert again.counts == source.counts
    assert played(again, 100) == played(source, 100)


def test_all_tasks_may_rest_and_the_source_goes_on():
    source = Curriculum(ROWS[:3], rest=10_000)
    for row in ROWS[:3]:
        source.report(group_of(row, 1.0, 1.0))
    assert len(list(islice(source, 20))) == 20


@each_case(
    ("rows", "settings", "error", "message"),
    [
        ([], {}, DataError, "rows is empty"),
        ([{"a": 1}, {"a": 1}], {}, DataError, "rows contains equal rows"),
        ([{"a": 1}], {"new": 0}, UsageError, "new=0, rest=200: new must be above 0"),
        ([{"a": 1}], {"rest": 0}, UsageError, "rest at least 1"),
        ([{"a": 1}], {"priority": lambda row: -1}, UsageError, r"priority of rows\[0\] is -1"),
    ],
)
def test_misuse_is_explained(rows, settings, error, message):
    with pytest.raises(error, match=message):
        Curriculum(rows, **settings)


def test_state_of_other_rows_is_rejected():
    with pytest.raises(DataError, match="belongs to other rows"):
        Curriculum(ROWS[:3]).load_state_dict(Curriculum(ROWS).state_dict())
