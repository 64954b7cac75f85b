"""Reward profiles of input and rollout files."""

from __future__ import annotations

import json

import pytest

from nemo_gym import jsonl
from nemo_gym.errors import DataError
from nemo_gym.metrics import Completion, write_profile
from nemo_gym.metrics.profile import profile


def asked(task, repeat, agent="solver"):
    return {
        "responses_create_params": {"input": f"question {task}"},
        "agent_ref": {"name": agent},
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
    }


def done(task, repeat, reward, agent="solver", **fields):
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    return {**asked(task, repeat, agent), "response": {"output": [], "usage": usage}, "reward": reward, **fields}


@pytest.fixture
def files(tmp_path):
    def write(inputs, rollouts):
        paths = tmp_path / "run_materialized_inputs.jsonl", tmp_path / "run.jsonl"
        for path, rows in zip(paths, (inputs, rollouts), strict=True):
            jsonl.write_rows(path, rows)
        return paths

    return write


def test_every_task_and_agent_has_its_metrics(files):
    inputs = [asked(0, 1), asked(1, 0, agent="other"), asked(0, 0)]
    found = profile(*files(inputs, [done(1, 0, 0.5, agent="other"), done(0, 1, 0.0), done(0, 0, 1.0)]))
    assert found.completion == Completion(3, 3, complete_inputs=2, partial_inputs=0, missing_inputs=0)
    first, second = found.group_level_metrics
    assert {key: first[key] for key in first if "/" not in key and key != "rollout_infos"} == {
        "_ng_task_index": 0,
        "sample": {"responses_create_params": {"input": "question 0"}, "agent_ref": {"name": "solver"}},
        "num_rollouts": 2,
        "expected_num_rollouts": 2,
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
    }
    assert (first["mean/reward"], second["mean/reward"]) == (0.5, 0.5)
    assert [info["rollout_id"] for info in first["rollout_infos"]] == ["0:0", "0:1"]
    assert {entry["agent_ref"]["name"]: entry["max/reward"] for entry in found.agent_metrics} == {
        "solver": 1.0,
        "other": 0.5,
    }
    assert all(entry["mean/total_tokens"] == 7.0 for entry in found.agent_metrics)


def test_missing_rollouts_are_listed(files):
    paths = files([asked(task, repeat) for task in (0, 1) for repeat in (0, 1)], [done(0, 1, 1.0)])
    with pytest.raises(DataError, match=r"run\.jsonl: .*3 missing: 0:0, 1:0, 1:1\. Resume the collection"):
        profile(*paths)


def test_missing_rollouts_may_be_allowed(files):
    inputs = [asked(task, repeat) for task in (0, 1, 2) for repeat in (0, 1)]
    paths = files(inputs, [done(0, 1, 1.0), done(1, 0, 0.0), done(1, 1, 0.0)])
    found = profile(*paths, allow_partial_rollouts=True)
    assert found.completion == Completion(6, 3, complete_inputs=1, partial_inputs=1, missing_inputs=1)
    assert [
        (group["num_rollouts"], group["missing_num_rollouts"], group["reward_profile_completion_pct"])
        for group in found.group_level_metrics
    ] == [(1, 1, 50.0), (2, 0, 100.0), (0, 2, 0.0)]
    assert "mean/reward" not in found.group_level_metrics[2]


@pytest.mark.parametrize("allow_partial_rollouts", [True, False])
def test_rollouts_without_input_are_listed(files, allow_partial_rollouts):
    paths = files([asked(0, 0)], [done(0, 0, 1.0), done(0, 3, 1.0), done(7, 0, 1.0)])
    with pytest.raises(DataError, match=r"2 without an input row: 0:3, 7:0\."):
        profile(*paths, allow_partial_rollouts=allow_partial_rollouts)


def test_duplicate_rollout_is_listed(files):
    with pytest.raises(DataError, match=r"1 duplicated: 0:0\."):
        profile(*files([asked(0, 0)], [done(0, 0, 1.0), done(0, 0, 0.0)]))


def test_long_list_of_keys_is_truncated(files):
    with pytest.raises(DataError, match=r"50 missing: 0:0, .*, 0:19 and 30 more\."):
        profile(*files([asked(0, repeat) for repeat in range(50)], []))


def test_failed_rollout_does_not_count(files):
    paths = files([asked(0, 0)], [done(0, 0, 0.0, _ng_failure_class="judge_failed")])
    with pytest.raises(DataError, match=r"1 missing: 0:0\."):
        profile(*paths)


def test_retried_rollout_counts_for_its_input(files):
    found = profile(*files([asked(0, 0)], [done(0, 0, 1.0, _ng_attempt_index=2)]))
    assert found.completion.completed_rows == 1


def test_row_without_indices_is_reported_with_its_line(files):
    with pytest.raises(DataError, match=r"run_materialized_inputs\.jsonl:2: '_ng_task_index' is missing"):
        profile(*files([asked(0, 0), {"question": "?"}], []))


def test_duplicate_input_row_is_reported_with_its_line(files):
    with pytest.raises(DataError, match=r"run_materialized_inputs\.jsonl:2: a second row for rollout 0:0"):
        profile(*files([asked(0, 0), asked(0, 0)], []))


def test_profile_files_are_written_next_to_rollouts(files):
    inputs, rollouts = files([asked(0, 0)], [done(0, 0, 1.0)])
    found = profile(inputs, rollouts)
    written = write_profile(found, rollouts)
    assert [path.name for path in written] == ["run_reward_profiling.jsonl", "run_agent_metrics.json"]
    assert {path.parent for path in written} == {rollouts.parent}
    assert list(jsonl.read_rows(written.reward_profiling)) == found.group_level_metrics
    assert json.loads(written.agent_metrics.read_bytes()) == found.agent_metrics


def test_swapped_inputs_and_rollouts_are_reported(files):
    message = r"run\.jsonl:1: not a rollout: the reward is missing\. Did you swap the inputs and the rollouts\?"
    with pytest.raises(DataError, match=message):
        profile(*files([asked(0, 0)], [asked(0, 0)]))
