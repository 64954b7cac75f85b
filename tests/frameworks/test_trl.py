"""TRL's trainers with a tiny Llama and real servers: programs of `examples/`, in a Python that has torch and TRL."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.trl_python import OFFLINE, REPOSITORY, python_with_trl

EXAMPLES = REPOSITORY / "examples"
LIMIT_S = 1700.0
"""A run computes for a minute and a half, which other tests can stretch several times."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def python():
    return python_with_trl()


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
