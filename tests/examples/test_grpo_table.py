"""The training example as a user runs it: a policy that learns, its picture, and wrong options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nemo_gym.rollouts.ledger import read

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "examples/grpo_table.py"
NAMES = ["example_session_state_mgmt", "mcqa", "grl_sokoban"]
STEP = re.compile(r"^ *(\d+) +━* +(\d\.\d\d) +(.*) \d+\.\d s$", re.MULTILINE)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(workplace):
    def run(*words):
        return subprocess.run(
            [sys.executable, PROGRAM, *words],
            cwd=workplace.folder, env=workplace.env, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip

    return run


def test_policy_learns_three_environments(run, workplace):
    finished = run("--seed", "2", "--steps", "10")
    assert finished.returncode == 0, finished.stderr
    steps = STEP.findall(finished.stdout)
    assert [int(number) for number, _, _ in steps] == list(range(1, 11))
    first, last = ([float(each) for each in (mean, *rest.split())] for _, mean, rest in (steps[0], steps[-1]))
    assert max(first) < 0.2
    assert min(last) > 0.9
    assert re.search(r"All [\d,]{6,} captured log-probabilities were those of the policy\.", finished.stdout)
    picture = ElementTree.parse(workplace.folder / "results/train_demo.svg").getroot()
    curves = [each.attrib["points"].split() for each in picture.iter(f"{SVG}polyline")]
    assert [len(points) for points in curves] == [10] * 4
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert all(any(text.startswith(name) for text in texts) for name in [*NAMES, "all rollouts"])
    (ledger,) = workplace.folder.glob("results/train_demo_*_run/ledger.jsonl")
    recorded = read(ledger.parent.with_name(f"{ledger.parent.name.removesuffix('_run')}.jsonl"))
    assert (recorded.planned, len(recorded.scored), recorded.end.state) == (5120, 5120, "finished")
    assert recorded.notes[-1].fields == {"policy_version": 10}
    assert workplace.left_over(5.0) == []


def test_same_seed_gives_the_same_curve(run):
    words = "--steps", "2", "--tasks", "8", "--group", "8"
    first, again, other = (run(*words, "--seed", seed, "--output", f"{seed}.svg") for seed in "112")
    assert len(STEP.findall(first.stdout)) == 2
    assert STEP.findall(first.stdout) == STEP.findall(again.stdout) != STEP.findall(other.stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mix", "mcq=1"], "argument --mix: 'mcq' is not one of example_session_state_mgmt, mcqa, grl_sokoban"),
        (["--mix", "mcqa"], "argument --mix: 'mcqa' needs a number, as in mcqa=0.5"),
        (["--mix", "mcqa=-1"], "shares['mcqa_simple_agent'] is -1.0. A share must be a finite number"),
        (["--output", "."], "--output . cannot be written (Is a directory)"),
        (["--steps", "0"], "--steps, --tasks and --group must be at least 1"),
    ],
)
def test_wrong_option_is_explained(run, words, message):
    finished = run(*words)
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.returncode == 2
