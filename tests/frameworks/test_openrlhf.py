"""OpenRLHF: its trainer's code takes the responses of the page's executor, and trains on sampled tokens only."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.frameworks.counting import COUNTED, ROWS, trained_text
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("openrlhf_trainer.py")


@pytest.fixture(scope="module")
def python():
    return python_with("openrlhf", "nemo_gym", "openrlhf", "peft", "torch")


def test_sampled_tokens_are_trained(python, open_run, engine, shared_workplace):
    folder = shared_workplace.folder / "trainer"
    folder.mkdir()
    (folder / "gym_executor.py").write_text(block_of("index.md", "gym_executor.py"))
    addresses = {"GYM_PORT": str(urlsplit(open_run.head).port), "GYM_POLICY": f"{engine}/v1"}
    env = shared_workplace.env | addresses | {"PYTHONPATH": str(folder)}
    rewarded, other, full = report_of(python, TRAINER, given=ROWS, folder=folder, env=env)
    assert [trained_text(each) for each in (rewarded, other, full)] == [COUNTED, COUNTED, ""]
    assert [each["reward"] for each in (rewarded, other, full)] == [1.0, 0.0, 0.0]
    assert (rewarded["advantages"], other["advantages"]) == ([1.1547], [-0.5774])
