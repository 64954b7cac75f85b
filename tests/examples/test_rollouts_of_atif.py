"""Trajectories in ATIF as rollouts: those of `ng dataset export`, and those of Harbor's trials."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.jsonl import write_rows
from nemo_gym.testing import call, reply
from nemo_gym.training import trajectory_of
from nemo_gym.training.dataset import DatasetJob, export_dataset
from tests.rows import rows_of

PROGRAM = Path(__file__).parents[2] / "examples/rollouts_of_atif.py"
ASKED = [
    {"role": "system", "content": "You see everything."},
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": "Where is what?"},
    {"role": "user", "content": "My key."},
]
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Twice."}]}
TRIAL = {
    "schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "terminus-2", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "List the files."},
        {"step_id": 2, "source": "agent", "message": "I list them.",
         "tool_calls": [{"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "ls"}}],
         "observation": {"results": [{"source_call_id": "c", "content": "a.txt"}, {"content": "It took 1 s."}]}},
    ],
}  # fmt: skip


def ran(*words):
    return subprocess.run([sys.executable, PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


def exported(path, kind, folder):
    output = folder / f"{kind}.jsonl"
    export_dataset(DatasetJob(format=kind, input_jsonl_fpath=path, output_jsonl_fpath=output, overwrite=True))
    return rows_of(output)


def test_exported_trajectories_come_back_as_the_same_conversations(tmp_path):
    looked, said = reply(call("look", at="floor"), "On the floor.").model_dump(mode="json")["output"]
    seen = {"type": "function_call_output", "call_id": looked["call_id"], "output": "a key"}
    tokens = [
        {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]},
        {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4], "generation_log_probs": [-0.25]},
    ]
    response = reply("").model_dump(mode="json") | {"output": [THOUGHT, looked | tokens[0], seen, said | tokens[1]]}
    row = {
        "responses_create_params": {"input": ASKED}, "response": response, "reward": 0.5,
        "agent_ref": {"name": "agent"}, "_ng_task_index": 0, "_ng_rollout_index": 0,
    }  # fmt: skip
    write_rows(tmp_path / "x.jsonl", [row, row | {"_ng_rollout_index": 1, "reward": 1.0}])
    exported(tmp_path / "x.jsonl", "atif", tmp_path)
    done = ran(tmp_path / "atif.jsonl", tmp_path / "back/y.jsonl")
    assert (done.returncode, done.stdout) == (0, "y.jsonl: 2 rollouts\n"), done.stderr
    back = rows_of(tmp_path / "back/y.jsonl")
    # The export begins with the best rollout of a task.
    numbers = [(each["_ng_task_index"], each["_ng_rollout_index"], each["reward"]) for each in back]
    assert numbers == [(0, 0, 1.0), (0, 1, 0.5)]
    assert exported(tmp_path / "back/y.jsonl", "sft", tmp_path / "back") == exported(
        tmp_path / "x.jsonl", "sft", tmp_path
    )
    assert trajectory_of(back[1]) == trajectory_of(row)


def test_trials_of_harbor_have_the_reward_of_their_verifier(tmp_path):
    for name, reward in (("good", "0.75"), ("broken", "none")):
        (tmp_path / name / "agent").mkdir(parents=True)
        (tmp_path / name / "agent/trajectory.json").write_text(json.dumps(TRIAL))
        (tmp_path / name / "verifier").mkdir()
        (tmp_path / name / "verifier/reward.txt").write_text(reward)
        (tmp_path / name / "result.json").write_text("{}")
    done = ran(tmp_path, tmp_path / "out.jsonl")
    assert done.stdout == "out.jsonl: 1 rollouts\nout_failures.jsonl: 1 rollouts\n", done.stderr
    [row] = rows_of(tmp_path / "out.jsonl")
    assert (row["reward"], row["agent_ref"]["name"]) == (0.75, "terminus-2")
    assert [item["type"] for item in row["response"]["output"]] == [
        "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    [failed] = rows_of(tmp_path / "out_failures.jsonl")
    assert "reward" not in failed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "a.json:1: not valid JSON"),
        ("{}", "a.json:1: schema_version is None. Expected one of ATIF-v1.5"),
        (json.dumps({"schema_version": "ATIF-v1.8"}), "a.json:1: the trajectory is not valid ATIF: KeyError('steps')"),
    ],
)
def test_other_files_are_rejected_with_their_place(text, problem, tmp_path):
    (tmp_path / "a.json").write_text(text)
    done = ran(tmp_path / "a.json", tmp_path / "out.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    assert problem in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
