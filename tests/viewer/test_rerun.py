"""Tests of the commands that run a task again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.run_record import RunRecord, read_record
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.index.place import Place
from nemo_gym.viewer.rerun import rerun_of
from tests.viewer.rollout_rows import run_record

COMMANDS = Path(sys.executable).parent


def commands_for(*command: str, results: Path = Path("/runs/my run/x.jsonl"), line: int = 7) -> str | None:
    record = RunRecord.model_validate_json(run_record(command=list(command)))
    return commands_of(record, results, line)


def commands_of(record: RunRecord | None, results: Path, line: int) -> str | None:
    files = RunFiles(results=results)
    return rerun_of(record, files, Place(files.materialized, line, 0, 0, TaskKey(3, 1), Outcome.UNRESOLVED, 0))


def test_only_words_about_servers_are_kept():
    found = commands_for(
        "/bin/ng", "eval", "run", "--resources-server", "mcqa", "--model-type=sample_model", "--num-repeats", "4",
        "--auto-install", "-o", "x.jsonl", "++mcqa.name=it's", "--judge.port", "5", "--num-repeats-add-seed",
        "--limit", "3", "+overwrite=true", "~judge", "--split", "example",
    )  # fmt: skip
    assert found is not None
    assert found.splitlines() == [
        "sed -n 7p '/runs/my run/x_materialized_inputs.jsonl' > task_3_repeat_1.jsonl",
        "ng eval run --resources-server mcqa --model-type=sample_model --auto-install '++mcqa.name=it'\"'\"'s' "
        "--judge.port 5 '~judge' --input task_3_repeat_1.jsonl --output task_3_repeat_1_again.jsonl --num-repeats 1",
    ]


def test_masked_values_are_pointed_out():
    found = commands_for("ng_e2e_collect_rollouts", "+config_paths=[a.yaml]", "+policy_api_key=****", "+limit=3")
    assert found is not None
    hint, _, collect = found.splitlines()
    assert hint == "# Replace each **** by its value."
    assert collect.startswith(
        "ng eval run '+config_paths=[a.yaml]' '+policy_api_key=****' --input task_3_repeat_1.jsonl"
    )


def test_runs_with_running_servers_need_no_start():
    found = commands_for("ng", "eval", "run", "--no-serve", "--input", "x.jsonl")
    assert found is not None
    assert "eval run" not in found


@pytest.mark.parametrize("command", [[], ["python", "train.py"], ["ng", "eval", "reverify"]])
def test_other_programs_have_no_command(command: list[str]):
    assert commands_for(*command) is None


@pytest.mark.slow
def test_pasted_commands_collect_the_task_again(tmp_path: Path):
    environment = {**os.environ, "PATH": f"{COMMANDS}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(tmp_path)}

    def shell(commands: str) -> None:
        done = subprocess.run(
            ["bash", "-c", commands], check=False, cwd=tmp_path, env=environment, timeout=300, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()

    servers = "--resources-server mcqa --model-type sample_model"
    shell(f"ng eval run {servers} --split example --num-repeats 2 -o x.jsonl")
    results = tmp_path / "x.jsonl"
    commands = commands_of(read_record(RunFiles(results=results).record), results, line=6)
    assert commands is not None
    shell(commands)
    planned = list(read_rows(tmp_path / "x_materialized_inputs.jsonl"))[5]
    [again] = read_rows(tmp_path / "task_3_repeat_1_again.jsonl")
    assert (again["uuid"], again["agent_ref"]) == (planned["uuid"], planned["agent_ref"])
