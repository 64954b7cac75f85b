"""New environments and benchmarks, created and used by their commands in a folder outside of the repository."""

from __future__ import annotations

import os
import shlex
import sysconfig
from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows

pytestmark = pytest.mark.slow

SCRIPTS = Path(sysconfig.get_path("scripts"))
SCAFFOLDS = {
    "verifier": "--environment verifier",
    "agent_loop": "--environment agent_loop --profile custom-gym-agent-loop",
    "external_loop": "--environment external_loop --profile external-agent-loop",
    "driver": "--environment driver --profile external-rollout-driver",
    "errors": "--environment errors --reward-range -1 3 --lower-is-better",
    "tools": "--environment tools --reuse-verifier example_multi_step --profile custom-gym-agent-loop",
    "game": "--environment game --reuse-verifier blackjack --reward-range -1 1",
    "questions": "--benchmark questions",
    "choices": "--benchmark choices --reuse-verifier mcqa --profile external-agent-loop",
}
ROWS = {"questions": 8}


@pytest.fixture(scope="module")
def projects(shared_workplace):
    """A folder with all scaffolds, and the printed commands of each."""
    path = os.pathsep.join([str(SCRIPTS), os.environ["PATH"]])
    commands = {}
    for name, words in SCAFFOLDS.items():
        made = shared_workplace.run("ng", "env", "init", *words.split(), PATH=path)
        assert (made.code, made.err) == (0, ""), made.err
        commands[name] = [shlex.split(line) for line in made.out.splitlines() if line.startswith("    ")]
    return shared_workplace, commands


def test_all_scaffolds_lint(projects):
    workplace, _ = projects
    folders = ("environments", "benchmarks", "resources_servers", "responses_api_agents")
    checked = workplace.run("ruff", "check", *folders)
    assert checked.code == 0, checked.out
    formatted = workplace.run("ruff", "format", "--check", *folders)
    assert formatted.code == 0, formatted.out


@pytest.mark.parametrize("name", SCAFFOLDS)
def test_printed_commands_test_check_and_score(projects, name):
    workplace, commands = projects
    test, check, collect = commands[name][:3]
    tested = workplace.run(*test)
    assert tested.code == 0, tested.out + tested.err
    assert " passed in" in tested.out
    checked = workplace.run(*check)
    assert checked.code == 0, checked.out + checked.err
    assert "11 of 11 promises kept" in checked.out
    collected = workplace.run(*collect, "+head_server.port=0")
    assert collected.code == 0, collected.out + collected.err
    assert len(list(read_rows(workplace.folder / "results" / f"{name}.jsonl"))) == ROWS.get(name, 5)


def test_printed_driver_runs_all_rows(projects):
    workplace, commands = projects
    start, drive = commands["driver"][3:]
    servers = workplace.start_servers(*start[1:])
    try:
        driven = workplace.run(*drive, f"--head-port={servers.head.rpartition(':')[2]}")
    finally:
        servers.end()
    assert driven.code == 0, driven.err
    rows = list(read_rows(workplace.folder / "results" / "driver_driven.jsonl"))
    assert driven.out == "results/driver_driven.jsonl: 5 rollouts, mean reward 0.000\n"
    assert [row["reward"] for row in rows] == [0.0] * 5


def test_driver_reports_that_no_servers_run(projects):
    workplace, commands = projects
    failed = workplace.run(*commands["driver"][4], "--head-port=1")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith("Error: ")
    assert "Traceback" not in failed.err


def test_training_rows_are_made_on_demand(projects):
    workplace, _ = projects
    words = ("+config_paths=[environments/verifier/config.yaml]", "+mode=train_preparation", "+output_dirpath=made")
    made = workplace.run("ng_prepare_data", *words)
    assert made.code == 0, made.err
    data = workplace.folder / "environments" / "verifier" / "data"
    counts = [len(list(read_rows(data / f"{split}.jsonl"))) for split in ("train", "validation")]
    assert counts == [2000, 200]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "Choose exactly one of --resources-server NAME, --environment NAME and --benchmark NAME."),
        ("--environment a --benchmark b", "Choose exactly one of --resources-server NAME, --environment NAME"),
        ("--environment a --higher-is-better --lower-is-better", "contradict each other. Choose one."),
        ("--resources-server a --reward-range 0 1", "--reward-range: not used with --resources-server"),
        ("--environment a --profile custom", "profile: it must be 'custom-gym-verifier', 'custom-gym-agent-loop'"),
        ("--environment a --reward-range 1", "argument --reward-range: expected 2 arguments"),
        ("--environment a --reward-range 1 x", "reward_range.1: it must be a valid number, but is 'x'"),
        ("--environment a --reward-range 1 0", "reward_range: 1 is not less than 0"),
        ("--environment 2x", "environment: '2x' is not a valid name"),
    ],
)
def test_wrong_flags_are_reported(projects, words, problem):
    workplace, _ = projects
    refused = workplace.run("ng", "env", "init", *words.split())
    assert refused.code == 2
    assert problem in refused.err
    assert "Traceback" not in refused.err


def test_existing_environment_is_not_changed(projects):
    workplace, _ = projects
    file = workplace.folder / "environments" / "verifier" / "config.yaml"
    before = file.stat()
    refused = workplace.run("ng", "env", "init", "--benchmark", "verifier")
    assert refused.code == 1
    assert refused.err.endswith("environments/verifier has the same name. Choose another name, or remove it first.\n")
    assert file.stat() == before
