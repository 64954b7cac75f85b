"""Retries of rollouts: which failures are retried, how often, and how attempts are recorded."""

from __future__ import annotations

import asyncio
import time

import pytest

from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.runner import AttemptLimits


def failing(kind: str, until: int) -> dict[str, object]:
    return {"act": "fail_until", "failure_class": kind, "until": until}


@pytest.mark.parametrize("kind", ["lost", "overloaded"])
async def test_lost_and_overloaded_rollouts_are_retried(run_tasks, make_task, agent, kind):
    run = await run_tasks([make_task(0, **failing(kind, 2)), make_task(1)])
    summary = run.summary
    assert (summary.planned, summary.scored, summary.failed, summary.repeated) == (2, 2, 0, 2)
    assert {row["_ng_task_index"]: row.get("_ng_attempt_index") for row in run.results} == {0: 2, 1: None}
    fields = (
        "_ng_failure_class",
        "_ng_failure_server",
        "_ng_failure_tier",
        "_ng_failure_retryable",
        "_ng_attempt_index",
    )
    assert [[row[key] for key in fields] for row in run.failures] == [
        [kind, "games", "environment", True, attempt] for attempt in (0, 1)
    ]
    assert sorted(agent.state()["ids"]) == ["0-0", "0-0-a1", "0-0-a2", "1-0"]


async def test_task_counts_once_by_its_last_cause(run_tasks, make_task):
    run = await run_tasks([make_task(0, **failing("lost", 9))], num_repeats=2, max_attempts=4)
    summary = run.summary
    assert (summary.planned, summary.failed_by_cause, summary.unresolved) == (2, {"lost": 2}, 0)
    assert len(run.failures) == 8
    assert summary.repeated == 6


@pytest.mark.parametrize("kind", ["model_failed", "environment_failed", "judge_failed", "timeout", "invalid_task"])
async def test_permanent_failures_are_not_retried(run_tasks, make_task, agent, kind):
    run = await run_tasks([make_task(0, **failing(kind, 1))])
    assert run.summary.failed_by_cause == {kind: 1}
    assert len(agent.state()["begun"]) == 1


async def test_broken_connection_is_lost_and_retried(run_tasks, make_task, agent):
    run = await run_tasks([make_task(act="cut")], max_attempts=2)
    assert run.summary.failed_by_cause == {"lost": 1}
    assert len(agent.state()["begun"]) == 2


async def test_retry_after_header_is_respected(run_tasks, make_task):
    started_at = time.monotonic()
    busy = {"act": "fail_until", "until": 1, "status": 429, "headers": {"retry-after": "0.4"}}
    run = await run_tasks([make_task(0, **busy)])
    assert run.summary.scored == 1
    assert [row["_ng_failure_class"] for row in run.failures] == ["overloaded"]
    assert time.monotonic() - started_at > 0.4


async def test_no_attempt_starts_past_the_rollout_timeout(run_tasks, make_task, agent):
    rows = [make_task(0, **failing("lost", 9))]
    run = await run_tasks(rows, rollout_timeout_s=10, retry_pause_s=60, max_attempts=50)
    assert run.summary.failed_by_cause == {"lost": 1}
    assert len(agent.state()["begun"]) == 1


async def test_attempts_share_the_rollout_timeout(run_tasks, make_task, agent):
    run = await run_tasks([make_task(0, **failing("lost", 1000))], rollout_timeout_s=0.5, max_attempts=1000)
    assert run.summary.failed == 1
    assert len(agent.state()["begun"]) < 1000


async def test_attempts_of_earlier_runs_count(run_tasks, make_task, agent):
    await run_tasks([make_task(0, **failing("lost", 9))], max_attempts=2)
    agent.begin_again()
    run = await run_tasks(None, resume_from_cache=True, max_attempts=5)
    assert agent.state()["ids"] == ["0-0-a2", "0-0-a3", "0-0-a4"]
    assert [row["_ng_attempt_index"] for row in run.failures] == [0, 1, 2, 3, 4]
    assert run.summary.failed_by_cause == {"lost": 1}
    again = await run_tasks(None, resume_from_cache=True, max_attempts=5)
    assert again.notes == ["tasks not retried after too many failures: 1 (raise +max_attempts to retry them)"]


async def test_invalid_task_is_not_retried_when_resuming(run_tasks, make_task, agent):
    await run_tasks([make_task(0, **failing("invalid_task", 1))])
    agent.begin_again()
    run = await run_tasks(None, resume_from_cache=True)
    assert agent.state()["begun"] == []
    assert run.summary.failed_by_cause == {"invalid_task": 1}
    assert run.notes == ["invalid tasks, not retried: 1 (correct their rows and add --resume=force to retry them)"]


async def test_corrected_invalid_task_is_retried_when_forced(run_tasks, make_task):
    await run_tasks([make_task(0, **failing("invalid_task", 9))])
    corrected = {**make_task(0), "act": "ok"}
    run = await run_tasks([corrected], resume_from_cache="force")
    assert (run.summary.scored, run.summary.failed) == (1, 0)
    assert run.notes == ["unscored rollouts of the earlier run whose row has changed: 1"]


async def test_reply_may_decide_about_its_retry(run_tasks, make_task, agent):
    body = '{"_ng_failure_class": "sandbox_lost", "_ng_failure_retryable": true}'
    run = await run_tasks([make_task(0, act="answer", bytes=body)], max_attempts=2)
    assert len(agent.state()["begun"]) == 2
    assert run.summary.failed_by_cause == {"sandbox_lost": 1}


def test_pauses_grow_with_jitter_up_to_a_limit():
    backoff = AttemptLimits.of(AttemptSettings(retry_pause_s=1.0), 9).backoff
    for number, (low, high) in enumerate([(0.5, 1.5), (2, 6), (8, 24), (30, 90), (30, 90)], start=1):
        pauses = {backoff.pause_s(number, None) for _ in range(50)}
        assert low <= min(pauses) <= max(pauses) <= high
        assert len(pauses) > 10
    assert backoff.pause_s(1, 10.0) == 10.0
    assert backoff.pause_s(1, 1e9) == 60.0


async def test_interrupted_retry_stays_failed_and_is_resumed(run_tasks, make_task, agent):
    summaries = []
    rows = [make_task(0, **failing("lost", 1)), make_task(1, act="held"), make_task(2)]
    running = asyncio.create_task(
        run_tasks(rows, retry_pause_s=30, on_record=lambda record, summary: summaries.append(summary))
    )
    async with asyncio.timeout(100):
        while not summaries or not summaries[0].repeated:  # noqa: ASYNC110 - waits for another process
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (summary,) = summaries
    assert (summary.planned, summary.scored, summary.failed_by_cause, summary.unresolved) == (3, 1, {"lost": 1}, 1)
    agent.release()
    run = await run_tasks([rows[0], {**rows[1], "act": "ok"}, rows[2]], resume_from_cache="force")
    assert (run.summary.scored, run.summary.failed, len(run.failures)) == (3, 0, 1)


async def test_unkept_attempt_leaves_its_task_failed(run_tasks, make_task):
    await run_tasks([make_task(0, act="crash")])
    rows = [make_task(0, act="answer", bytes='{"_ng_no_persist": true}')]
    run = await run_tasks(rows, resume_from_cache="force")
    assert (run.summary.failed_by_cause, run.summary.unresolved) == ({"agent_failed": 1}, 0)
    assert len(run.failures) == 1
