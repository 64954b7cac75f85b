"""SkyRL: its trainer runs rollouts with the page's generator, checks them, and trains on sampled tokens only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.counting import COUNTED, ROWS, forgetful_row, trained_text, ungraded_row
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("skyrl_trainer.py")


@pytest.fixture(scope="module")
def python():
    return python_with("skyrl", "jaxtyping", "nemo_gym", "skyrl", "torch")


@pytest.fixture(scope="module")
def sequences(python, open_run, engine, shared_workplace):
    """Return what SkyRL would train on, by the row's number."""
    folder = shared_workplace.folder / "trainer"
    folder.mkdir()
    (folder / "gym_generator.py").write_text(block_of("index.md", "gym_generator.py"))
    env = shared_workplace.env | {"PYTHONPATH": str(folder)}
    given = [*ROWS, forgetful_row(), ungraded_row()]
    report = report_of(python, TRAINER, open_run.head, engine, given=given, folder=folder, env=env)
    return {at: [each for each in report if each["uid"] == f"uid{at}"] for at in range(len(given))}


def test_sampled_tokens_are_trained(sequences):
    assert [len(sequences[row]) for row in range(5)] == [2, 2, 1, 4, 1]
    assert [{trained_text(each) for each in sequences[row]} for row in range(5)] == [
        {COUNTED}, {COUNTED}, {""}, {COUNTED}, {""}
    ]  # fmt: skip


def test_each_rollout_counts_once(sequences):
    rewards = {row: {each["reward"] for each in sequences[row]} for row in range(5)}
    assert rewards == {0: {1.0}, 1: {0.0}, 2: {0.0}, 3: {1.0}, 4: {0.0}}
    advantages = {row: {round(each["advantage"], 4) for each in sequences[row]} for row in range(5)}
    # Four of eight trajectories have a reward, and both sequences of a rollout have its advantage.
    assert advantages[0] == advantages[3] == {0.9354}
    assert advantages[1] == {-0.9354}
