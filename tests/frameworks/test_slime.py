"""slime: miles, its fork with the same samples, makes training data of our rollouts with the page's module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.counting import COUNTED, trained_text
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("slime_trainer.py")


@pytest.fixture(scope="module")
def python():
    return python_with("miles", "miles", "nemo_gym", "ray", "torch")


def test_sampled_tokens_are_trained(python, results, shared_workplace, tmp_path):
    (tmp_path / "gym_samples.py").write_text(block_of("index.md", "gym_samples.py"))
    env = shared_workplace.env | {"PYTHONPATH": str(tmp_path)}
    samples = report_of(python, TRAINER, given=results, folder=tmp_path, env=env)
    assert [each["sample"] for each in samples] == [0, 1, 2, 2, 3]
    assert [trained_text(each) for each in samples] == [COUNTED] * 4 + [""]
    assert [each["raw_reward"] for each in samples] == [1.0, 0.0, 1.0, 1.0, 0.5]
    assert [each["status"] for each in samples] == ["completed"] * 4 + ["failed"]
    assert [each["oldest"] for each in samples] == [5] * 4 + [None]
    assert [each["versions"] for each in samples] == [["5"] * 2] * 4 + [[]]
    assert {each["group"] for each in samples} == {7}
