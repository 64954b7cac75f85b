"""The game that a tiny Llama learns: a training begins, is tested on held-out tasks, and is a run for `ng view`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nemo_gym.rollouts.ledger import read
from tests.trl_python import OFFLINE, python_with_trl

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "treasure_hunt.py"
LINE = re.compile(r"^ +(\d+) +([\d.]+) +([\d.]+) +(\d+) +([\d.]+|-)$", re.M)
STEPS = 60


def test_held_out_treasures_are_found_more_often(workplace):
    finished = subprocess.run(
        [python_with_trl(), EXAMPLE, "--steps", str(STEPS), "--seeds", "0"],
        cwd=workplace.folder, env=workplace.env | OFFLINE | {"PYTHONPATH": str(EXAMPLE.parents[1])},
        capture_output=True, text=True, check=False, timeout=1700,
    )  # fmt: skip
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = [tuple(map(float, found[:-1])) for found in LINE.findall(finished.stdout)]
    assert [step for step, *_ in lines] == [1, *range(10, STEPS + 1, 10)]
    held_out = [reward for _, reward, *_ in lines]
    assert held_out[0] < 0.3
    assert max(held_out) > held_out[0] + 0.3
    assert max(staleness for *_, staleness in lines) <= 4
    picture = (workplace.folder / "results/treasure_hunt.svg").read_text()
    assert "stroke-dasharray" in picture
    (ledger,) = workplace.folder.glob("results/treasure_hunt_*_run/ledger.jsonl")
    recorded = read(ledger.parent.with_name(f"{ledger.parent.name.removesuffix('_run')}.jsonl"))
    notes = [note.fields for note in recorded.notes]
    assert [each["step"] for each in notes if "step" in each] == [*range(1, STEPS + 1)]
    assert all({"staleness", "log_prob_difference"} <= set(each) for each in notes if "step" in each)
    assert max(each["policy_version"] for each in notes if "policy_version" in each) == STEPS
    assert workplace.left_over() == []
