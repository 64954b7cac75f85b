"""Tinker: the cookbook makes its data of the rollouts of a run, with the page's module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.counting import COUNTED, ROWS, forgetful_row, trained_text, ungraded_row
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("tinker_trainer.py")


@pytest.fixture(scope="module")
def python():
    return python_with("tinker", "nemo_gym", "tinker", "tinker_cookbook", "torch")


@pytest.fixture(scope="module")
def step(python, open_run, engine, shared_workplace):
    """Return the data of a step."""
    folder = shared_workplace.folder / "trainer"
    folder.mkdir()
    (folder / "gym_groups.py").write_text(block_of("index.md", "gym_groups.py"))
    env = shared_workplace.env | {"PYTHONPATH": str(folder)}
    given = [*ROWS, forgetful_row(), ungraded_row()]
    return report_of(python, TRAINER, open_run.head, engine, given=given, folder=folder, env=env)


def test_sampled_tokens_are_trained(step):
    sequences = step["sequences"]
    assert {trained_text(each) for each in sequences} == {COUNTED}
    assert [each["others"] for each in sequences] == [[0.0]] * len(sequences)


def test_each_rollout_counts_once(step):
    sequences = step["sequences"]
    # Two rollouts have two sequences each. The failed rollouts and those without tokens are left out.
    assert (len(sequences), len({each["rollout"] for each in sequences})) == (8, 6)
    assert {(each["reward"], *each["advantages"]) for each in sequences} == {(1.0, 0.3333), (0.0, -0.6667)}


def test_masked_turns_are_not_trained(step):
    assert step["masked"]["target_tokens"] == [2, 3, 4]
    assert step["masked"]["mask"] == step["masked"]["advantages"] == [0.0] * 3
