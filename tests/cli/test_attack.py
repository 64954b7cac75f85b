"""`ng env check --attack`: its table, its exit code and its rollouts."""

import re
import subprocess
import sys

import pytest

from nemo_gym.jsonl import read_rows
from tests.contract.holes import HOLES, HONEST, Hole, write_hole

pytestmark = pytest.mark.slow


@pytest.fixture
def attack(tmp_path):
    """Attack an environment in a process of its own."""

    def run(hole, *words):
        folder = write_hole(tmp_path, hole)
        given = ["env", "check", "--resources-server", folder.name, "--attack", *words]
        command = [sys.executable, "-m", "nemo_gym", *given]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    return run


def test_exploit_is_reported_and_its_rollouts_written(attack, tmp_path):
    ran = attack(HOLES["an answer anywhere counts"], "--attack-rollouts", "won.jsonl")
    assert ran.returncode == 1
    assert "✗  every option listed" in ran.stdout
    assert "row 1 earned 1 of 1 with 'Oslo\\nLima\\nNairobi\\nRiga'" in ran.stdout
    assert re.search(r"\nresources_servers/holes: \d+ findings\n$", ran.stdout)
    won = list(read_rows(tmp_path / "won.jsonl"))
    assert {(row["attack"], row["reward"]) for row in won} >= {("the question echoed", 1.0)}


def test_honest_grader_exits_with_zero(attack):
    ran = attack(HONEST["an exact answer"])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "no task has a program to write" in ran.stdout
    assert "resources_servers/holes: no exploit found" in ran.stdout


def test_partial_credit_counts_above_the_margin(attack):
    partial = Hole("return 1.0 if text == f'Answer: {expected}' else 0.6 * ('Oslo' in text)", "", "capitals")
    assert "earned 0.6 of 1" in attack(partial).stdout
    assert attack(partial, "--attack-margin", "0.7").returncode == 0


def test_program_that_ends_the_server_is_an_exploit(attack):
    ran = attack(Hole("if code: exec(code, {})\nreturn float(text == expected or '2 * n' in code)", "", "programs"))
    assert ran.returncode == 1
    assert "✗  an early exit" in ran.stdout
    assert "it has ended the server's process. Run programs in a sandbox" in ran.stdout


def test_files_of_an_attack_are_deleted(attack, tmp_path):
    hole = Hole("if code: run(code, folder='.')\nreturn float('2 * n' in code)", "", "programs")
    assert attack(hole).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["resources_servers"]
