"""GRPO with TRL whose rollouts come from a real vLLM: `examples/trl_grpo.py --engine vllm`."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.conftest import Command
from tests.engines.conftest import LIMIT_S, REPOSITORY
from tests.trl_python import OFFLINE, python_with_trl

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.timeout(2 * LIMIT_S),
]

ROUNDING = 1e-4
"""The largest difference of log-probabilities that two programs may compute in float32."""
STEP = re.compile(r"^step (\d+): reward ([\d.]+), log-probabilities differ by (\S+) on average, (\S+) at most", re.M)
WARNING = re.compile(r"^step (\d+): this is more than 0.0001: the policy that sampled is not the one that was", re.M)


@pytest.fixture(scope="module")
def trl():
    return python_with_trl()


@pytest.fixture
def training(workplace, python, trl):
    """Start a program with TRL in the workplace."""

    def started(*words):
        out, err = workplace.folder / "out", workplace.folder / "err"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [trl, *words], cwd=workplace.folder, stdout=out_file, stderr=err_file,
                env=workplace.env | OFFLINE | {"PYTHONPATH": str(REPOSITORY)},
            )  # fmt: skip
        return Command(process, out, err)

    return started


def steps_of(text):
    """Return the reward of each step, and the largest difference of its log-probabilities."""
    found = [(int(step), float(reward), float(most)) for step, reward, _, most in STEP.findall(text)]
    assert [step for step, *_ in found] == list(range(1, len(found) + 1))
    return [reward for _, reward, _ in found], [most for *_, most in found]


def test_command_of_the_page_learns(training, workplace, python):
    page = (REPOSITORY / "docs/training/real_engine.md").read_text()
    (words,) = re.findall(r"^\$ \.venv-rl/bin/python examples/trl_grpo.py (.*--output .*)$", page, re.MULTILINE)
    example = REPOSITORY / "examples/trl_grpo.py"
    # The reward of 60 steps rises enough to be seen.
    finished = training(example, *words.split(), "--steps", "60", "--engine-python", python).wait(LIMIT_S)
    assert finished.code == 0, finished.out + finished.err
    rewards, differences = steps_of(finished.out)
    assert len(rewards) == 60
    assert max(differences) < ROUNDING
    assert WARNING.findall(finished.out) == []
    # A policy that does not learn changes by less than 0.05.
    assert sum(rewards[-10:]) / 10 > sum(rewards[:10]) / 10 + 0.12, rewards
    assert "<svg" in (workplace.folder / "results/trl_grpo.svg").read_text()
    assert workplace.left_over() == []


def test_old_weights_and_a_killed_engine_are_reported(training, workplace, python):
    example = REPOSITORY / "examples/trl_grpo.py"
    command = training(
        example, "--engine", "vllm", "--steps", "100000", "--push-every", "2", "--engine-python", python
    )
    text = command.wait_for("step 5:", LIMIT_S)
    # Steps 1, 3 and 5 sample with the weights that are trained, and 2 and 4 with those of the step before.
    _, differences = steps_of(text)
    assert [most < ROUNDING for most in differences[:5]] == [True, False, True, False, True]
    assert WARNING.findall(text)[:2] == ["2", "4"]
    (engine,) = [each for each in workplace.processes() if is_engine(each)]
    engine.kill()
    finished = command.wait(LIMIT_S)
    assert finished.code == 1
    assert "Traceback" not in finished.out + finished.err
    *_, error = finished.err.splitlines()
    assert error.startswith("Error: "), finished.err
    assert "policy_model: vllm ended with exit code" in error
    assert workplace.left_over() == []


def test_pushed_weights_replace_cached_prompts(training, python, workplace):
    program = REPOSITORY / "tests/engines/pushed_weights.py"
    finished = training(program, workplace.folder / "served", python).wait(LIMIT_S)
    assert finished.code == 0, finished.err
    found = json.loads(finished.out.splitlines()[-1])
    is_first = [first < ROUNDING < second for first, second in found["steps"]]
    is_second = [second < ROUNDING < first for first, second in found["steps"]]
    assert is_first == [True, True, False, True], found
    assert is_second == [False, False, True, False], found
    assert found["error"].startswith("vLLM can no longer be used: policy_model: vllm ended with exit code"), found
    assert workplace.left_over() == []


def is_engine(process):
    words = process.cmdline()
    return "vllm.entrypoints.openai.api_server" in words and "keeper.py" not in " ".join(words)
