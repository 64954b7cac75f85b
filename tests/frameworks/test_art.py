"""ART: its own code makes training sequences of our rollouts, with the page's module and without a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.counting import COUNTED, trained_text
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("art_trainer.py")


@pytest.fixture(scope="module")
def python():
    return python_with("art", "art", "nemo_gym", "torch", "transformers")


def test_sampled_tokens_are_trained(python, results, shared_workplace):
    folder = shared_workplace.folder / "trainer"
    folder.mkdir()
    (folder / "gym_art.py").write_text(block_of("index.md", "gym_art.py"))
    env = shared_workplace.env | {"PYTHONPATH": str(folder)}
    report = report_of(python, TRAINER, given=results, folder=folder, env=env)
    # The rollout without tokens is left out, and another one has two sequences.
    assert (report["rollouts"], len(report["sequences"])) == (3, 4)
    assert [trained_text(each) for each in report["sequences"]] == [COUNTED] * 4
    assert [each["advantage"] for each in report["sequences"]] == [0.7071, -1.4142, 0.7071, 0.7071]
    assert {tuple(each["versions"]) for each in report["sequences"]} == {(5, 5)}
