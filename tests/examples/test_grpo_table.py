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
    finished = run("--seeds", "1", "2", "--steps", "10", "--group", "32", "--learning-rate", "0.4")
    assert finished.returncode == 0, finished.stderr
    steps = STEP.findall(finished.stdout)
    assert [int(number) for number, _, _ in steps] == [*range(1, 11)] * 2
    first, last = ([float(each) for each in (mean, *rest.split())] for _, mean, rest in (steps[10], steps[-1]))
    assert max(first) < 0.2
    assert min(last[:1] + last[2:]) > 0.9
    # A table memorises.
    assert last[1] < 0.4
    assert (
        len(re.findall(r"all [\d,]{6,} captured log-probabilities were those of the policy\.", finished.stdout)) == 2
    )
    picture = ElementTree.parse(workplace.folder / "results/train_demo.svg").getroot()
    curves = [each.attrib["points"].split() for each in picture.iter(f"{SVG}polyline")]
    assert [len(points) for points in curves] == [10] * 5
    assert len(list(picture.iter(f"{SVG}polygon"))) == 5
    assert any("stroke-dasharray" in each.attrib for each in picture.iter(f"{SVG}path"))
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    labels = [*NAMES, "all rollouts", "held-out tasks", "random"]
    assert all(any(text.startswith(name) for text in texts) for name in labels)
    (ledger,) = workplace.folder.glob("results/train_demo_*_seed2_run/ledger.jsonl")
    recorded = read(ledger.parent.with_name(f"{ledger.parent.name.removesuffix('_run')}.jsonl"))
    assert (recorded.planned, len(recorded.scored), recorded.end.state) == (5120, 5120, "finished")
    assert recorded.notes[-1].fields == {"policy_version": 10}
    assert workplace.left_over(5.0) == []


def test_same_seed_gives_the_same_curve(run):
    words = "--steps", "2", "--tasks", "8", "--group", "8"
    first, again, both = (run(*words, "--seeds", *seeds, "--output", f"{seeds}.svg") for seeds in ("1", "1", "21"))
    assert len(STEP.findall(first.stdout)) == 2
    assert STEP.findall(first.stdout) == STEP.findall(again.stdout) == STEP.findall(both.stdout)[2:]
    assert STEP.findall(both.stdout)[:2] != STEP.findall(both.stdout)[2:]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mix", "mcq=1"], "argument --mix: 'mcq' is not one of example_session_state_mgmt, mcqa, grl_sokoban"),
        (["--mix", "mcqa"], "argument --mix: 'mcqa' needs a number, as in mcqa=0.5"),
        (["--mix", "mcqa=-1"], "shares['mcqa_simple_agent'] is -1.0. A share must be a finite number"),
        (["--output", "."], "argument --output: . cannot be written (Is a directory)"),
        (["--steps", "0"], "--steps, --tasks and --group must be at least 1"),
    ],
)
def test_wrong_option_is_explained(run, words, message):
    finished = run(*words)
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.returncode == 2
