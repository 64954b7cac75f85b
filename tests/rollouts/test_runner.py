"""Outcomes of rollouts for good and faulty agents: one record each, and the run continues."""

from __future__ import annotations

import pytest

from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.row import Row
from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.bare

SOUND = {"type": "responses_api_agents", "name": "sound"}


def reward(json: str) -> dict[str, str]:
    return {"act": "answer", "bytes": f'{{"response": {{}}, "reward": {json}}}'}


JUDGE_FAILED = '{"_ng_failure_class": "judge_failed", "reward": 0.0, "_ng_failure_judge_error": "the judge is silent"}'
TIERS = {
    "model_failed": "model", "agent_failed": "agent", "lost": "agent", "timeout": "collector", "judge_failed": "judge",
    "environment_failed": "environment", "sandbox_lost": "agent", "invalid_task": "collector", "overloaded": "agent",
}  # fmt: skip
FAILURES = {
    "a row refused": ({"act": "fail_until", "until": 9, "status": 422}, "invalid_task", "sound", "422: no room"),
    "no room": ({"act": "fail_until", "until": 9, "status": 503}, "overloaded", "sound", "answered 503: no room"),
    "a problem body": ({"act": "model_failed"}, "model_failed", "policy_model", "the endpoint is out of memory"),
    "a plain 500": ({"act": "crash"}, "agent_failed", "sound", "/run answered 500: no such luck"),
    "an answer cut off": ({"act": "cut"}, "lost", "sound", "closed the connection within the body"),
    "too late": ({"act": "slow", "lasts_s": 600}, "timeout", "sound", "took longer than rollout_timeout_s=1"),
    "not JSON": ({"act": "answer", "bytes": "<html>oops"}, "agent_failed", "sound", "not valid JSON (unexpected"),
    "nothing": ({"act": "answer", "bytes": ""}, "agent_failed", "sound", "not valid JSON"),
    "a list": ({"act": "answer", "bytes": "[]"}, "agent_failed", "sound", "returned a list, not an object"),
    "too deep": (reward(f'1.0, "deep": {"[" * 300}{"]" * 300}'), "agent_failed", "sound", "is nested more than 200"),
    "no reward": ({"act": "answer", "bytes": "{}"}, "environment_failed", "sound", "the reward None"),
    "null": (reward("null"), "environment_failed", "sound", "the reward None"),
    "a text": (reward('"1"'), "environment_failed", "sound", "the reward '1'"),
    "a boolean": (reward("true"), "environment_failed", "sound", "the reward True"),
    "not a number": (reward("NaN"), "agent_failed", "sound", "NaN"),
    "infinity": (reward("1e999"), "agent_failed", "sound", "1e999"),
    "its own class": (
        {"act": "answer", "bytes": '{"_ng_failure_class": "sandbox_lost", "reward": 1.0, "why": "gone"}'},
        "sandbox_lost", "sound", "gone",
    ),
    "a judge": (
        {"act": "answer", "bytes": JUDGE_FAILED}, "judge_failed", "sound", "the judge is silent",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "cause", "server", "words"), FAILURES.values(), ids=FAILURES)
async def test_failure_records_cause_server_and_task(run_tasks, make_task, fields, cause, server, words):
    # On a busy machine, a good rollout may take longer than a short timeout.
    is_short = cause == "timeout"
    limits = {"rollout_timeout_s": 1 if is_short else PATIENCE_S, "max_attempts": 1}
    rows = [make_task(0, **fields)] if is_short else [make_task(0, **fields), make_task(1)]
    run = await run_tasks(rows, num_repeats=2, **limits)
    scored = [] if is_short else [(1, 0), (1, 1)]
    assert run.keys == scored
    assert (run.summary.scored, run.summary.failed_by_cause, run.summary.unresolved) == (len(scored), {cause: 2}, 0)
    for repeat, failure in enumerate(sorted(run.failures, key=lambda row: row["_ng_rollout_index"])):
        assert failure["_ng_failure_class"] == cause
        assert failure["_ng_failure_server"] == server
        assert failure["_ng_failure_tier"] == TIERS[cause]
        assert failure["_ng_failure_retryable"] is (cause in {"lost", "overloaded"})
        assert failure["_ng_attempt_index"] == 0
        assert (failure["failure_kind"], failure["failure_reason"]) == (cause, failure["_ng_failure_message"])
        assert "reward" not in failure
        assert words in f"{failure['_ng_failure_message']} {failure.get('why')}"
        assert (failure["_ng_task_index"], failure["_ng_rollout_index"]) == (0, repeat)
        assert failure["agent_ref"] == SOUND
        assert failure["responses_create_params"] == {"input": "task 0"}
        assert failure["number"] == 0


@pytest.mark.parametrize("earned", [0, 1, -2.5, 1e300])
async def test_any_finite_number_is_a_valid_reward(run_tasks, make_task, earned):
    run = await run_tasks([make_task(earns=earned)])
    assert [row["reward"] for row in run.results] == [earned]
    assert run.summary.mean_reward == earned


async def test_result_is_reply_with_the_tasks_key(run_tasks, make_task, tmp_path):
    (tmp_path / "skills" / "sum").mkdir(parents=True)
    (tmp_path / "skills" / "sum" / "SKILL.md").write_text("---\nname: sum\n---\n")
    skills = {"path": str(tmp_path / "skills")}
    run = await run_tasks([make_task(0, act="deny_its_key", _ng_rollout_id="mine")], skills=skills)
    (result,) = run.results
    assert (result["_ng_task_index"], result["_ng_rollout_index"], result["_ng_rollout_id"]) == (0, 0, "mine")
    assert result["agent_ref"] == SOUND
    assert result["skills_ref"]["skills"][0]["name"] == "sum"
    assert result["response"]["usage"] == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    assert result["number"] == 0
    assert result["reward"] == 1.0


async def test_long_integers_of_rows_and_results_are_kept(run_tasks, make_task):
    long = 12345678901234567890123
    reply = f'{{"reward": 1.0, "score": {long}}}'
    run = await run_tasks([make_task(0, act="answer", bytes=reply, id=long)], num_repeats=2)
    assert [row["score"] for row in run.results] == [long, long]
    assert f'"id":{long}'.encode() in run.files.materialized.read_bytes()


async def test_unkept_result_is_unresolved(run_tasks, make_task):
    run = await run_tasks([make_task(act="answer", bytes='{"_ng_no_persist": true, "reward": 1.0}'), make_task(1)])
    assert (run.summary.scored, run.summary.failed, run.summary.unresolved) == (1, 0, 1)
    assert run.keys == [(1, 0)]
    assert run.failures == []


async def test_dead_agent_fails_current_and_later_rollouts(run_tasks, run_again, make_task, mortal_agent, agent):
    client = mortal_agent.client()
    # The run itself is up.
    client.head_server_config = agent.client().head_server_config
    rows = [make_task(0), make_task(1, act="held"), make_task(2, act="die")]
    settings = {"client": client, "num_samples_in_parallel": 2, "max_attempts": 1}
    await run_tasks(rows, rollout_timeout_s=PATIENCE_S, **settings)
    # The caller waits for the agent's return until the timeout.
    run = await run_again([*rows, make_task(3)], rollout_timeout_s=1, **settings)
    await client.aclose()
    assert run.keys == [(0, 0)]
    assert run.summary.failed_by_cause in ({"lost": 2, "timeout": 1}, {"lost": 3})
    messages = {row["_ng_task_index"]: row["_ng_failure_message"] for row in run.failures}
    assert "before the first byte of an answer" in messages[1]
    assert "before the first byte of an answer" in messages[2]


async def test_unknown_agent_is_reported_with_known_ones(client):
    row = {"agent_ref": {"name": "absent"}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    record = await Runner(client, rollout_timeout_s=100).run(Row(row))
    assert (record.outcome, record.cause, record.row.failure_server) == (
        Outcome.FAILED,
        "agent_failed",
        "absent",
    )
    assert "no server is named 'absent'; there are: graders, mute, sick, sound, team" in record.row.failure_message


async def test_invalid_row_is_recorded_as_a_failure(client):
    row = {"agent_ref": {"name": "sound"}, "_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_rollout_id": "no spaces"}
    record = await Runner(client, rollout_timeout_s=100).run(Row(row))
    assert (record.outcome, record.cause) == (Outcome.FAILED, "invalid_task")
    assert "'no spaces' is not a rollout id" in record.row.failure_message


async def test_masked_sample_is_mirrored_in_collected_results(run_tasks, make_task):
    run = await run_tasks([make_task(act="answer", bytes='{"reward": 0.0, "mask_sample": true}')])
    assert [row["instance_config"] for row in run.results] == [{"mask_sample": True}]


@pytest.mark.parametrize(("act", "server"), [("ok", None), ("crash", "sound"), ("model_failed", "policy_model")])
async def test_failure_behind_a_collector_names_the_server_that_failed(run_tasks, make_task, act, server):
    # The server of this name passes for a collector, which returns the agent's reply unchanged.
    run = await run_tasks([make_task(act=act)], collector="mute", max_attempts=1)
    assert [row["_ng_failure_server"] for row in run.failures] == ([] if server is None else [server])
    assert [row["agent_ref"]["name"] for row in [*run.results, *run.failures]] == ["sound"]
