"""The asynchronous example: both of its trainings end, and no rollout is staler than its bound."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.trl_python import OFFLINE, python_with_trl

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "async_grpo.py"
LINE = re.compile(r"^ +(\d+) +([\d.]+) +(\d+) +([\d.]+) s$", re.M)
STEPS = 6


def test_training_that_never_waits_keeps_its_bound(workplace):
    finished = subprocess.run(
        [python_with_trl(), EXAMPLE, "--steps", str(STEPS), "--output", "curve.svg"],
        cwd=workplace.folder, env=workplace.env | OFFLINE | {"PYTHONPATH": str(EXAMPLE.parents[1])},
        capture_output=True, text=True, check=False, timeout=590,
    )  # fmt: skip
    assert (finished.returncode, finished.stderr) == (0, "")
    waiting, going_on = (LINE.findall(text) for text in finished.stdout.split("\nasynchronous\n"))
    assert [int(step) for step, *_ in waiting] == [int(step) for step, *_ in going_on] == [*range(1, STEPS + 1)]
    assert {int(staleness) for _, _, staleness, _ in waiting} == {0}
    assert 0 < max(int(staleness) for _, _, staleness, _ in going_on) <= 4
    assert "without waiting, it takes" in finished.stdout
    assert "<svg" in (workplace.folder / "curve.svg").read_text()
    assert workplace.left_over() == []
