"""TRL's trainers with a tiny Llama and real servers: programs of `examples/`, in a Python that has torch and TRL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
LIMIT_S = 1700.0
"""A run computes for a minute and a half, which other tests can stretch several times."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
# Importing them would take half a minute on a busy machine.
HAS_TRL = """
from importlib.util import find_spec
raise SystemExit(not all(map(find_spec, ("datasets", "nemo_gym", "torch", "transformers", "trl"))))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def python():
    """Return the first interpreter that has TRL: this one, $NEMO_GYM_RL_PYTHON or that of `make rl`."""
    candidates = [sys.executable, os.environ.get("NEMO_GYM_RL_PYTHON"), REPOSITORY / ".venv-rl/bin/python"]
    for candidate in filter(None, candidates):
        if Path(candidate).is_file():
            tried = subprocess.run([candidate, "-c", HAS_TRL], capture_output=True, check=False)
            if tried.returncode == 0:
                return candidate
    pytest.skip("no Python with torch and TRL: run `make rl`, or set NEMO_GYM_RL_PYTHON")


@pytest.fixture
def run_example(python, workplace):
    """Run a program of `examples/`, and return its output."""

    def run(name, *words):
        finished = subprocess.run(
            [python, EXAMPLES / name, *words], cwd=workplace.folder, env=workplace.env | OFFLINE, capture_output=True,
            text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, f"{finished.stdout[-3000:]}\n{finished.stderr[-5000:]}"
        return finished.stdout

    return run


def first_and_last(output):
    found = re.search(r"the first 5 steps: ([\d.]+), of the last 5: ([\d.]+)", output)
    assert found is not None, output
    return tuple(map(float, found.groups()))


def test_grpo_learns_from_our_rollouts(run_example, workplace):
    first, last = first_and_last(run_example("trl_grpo.py", "--steps", "80"))
    assert last > first + 0.3
    assert workplace.left_over() == []


def test_grpo_learns_in_an_environment(run_example, workplace):
    first, last = first_and_last(run_example("trl_grpo.py", "--steps", "40", "--environment"))
    assert last > first + 0.1
    assert workplace.left_over() == []


def test_exported_files_train_with_sft_and_dpo(run_example):
    output = run_example("sft_then_dpo.py")
    losses = {
        form: list(map(float, numbers.split(", "))) for form, numbers in re.findall(r"loss on (\w+): (.*)", output)
    }
    assert list(losses) == ["messages", "prompt_completion", "preference"]
    assert all(len(each) == 3 and each[-1] < each[0] for each in losses.values()), losses
