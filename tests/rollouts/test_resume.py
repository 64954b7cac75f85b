"""Resuming a run: finished tasks are kept, pending ones run, and each repeat counts once."""

from __future__ import annotations

import os
import re

import pytest

from nemo_gym import jsonl
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.rollouts.resume import MAX_ATTEMPTS_ENV_VAR

pytestmark = pytest.mark.bare


async def test_scored_tasks_are_not_run_again(run_tasks, run_again, make_task, agent):
    first = await run_tasks([make_task(n) for n in range(5)], num_repeats=2)
    lines = first.files.results.read_bytes().splitlines(keepends=True)
    first.files.results.write_bytes(b"".join(lines[:7]))
    agent.begin_again()
    again = await run_again()
    assert len(agent.state()["begun"]) == 3
    assert again.keys == [(n, repeat) for n in range(5) for repeat in range(2)]
    assert again.files.results.read_bytes().startswith(b"".join(lines[:7]))
    assert (again.summary.planned, again.summary.scored, again.summary.kept) == (10, 10, 7)


async def test_complete_run_sends_no_requests(run_tasks, run_again, make_task, agent):
    first = await run_tasks([make_task(0)])
    before = first.files.results.read_bytes()
    agent.begin_again()
    again = await run_again()
    assert agent.state()["begun"] == []
    assert again.files.results.read_bytes() == before


async def test_mean_reward_includes_the_kept_results(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(n, earns=earns) for n, earns in enumerate((0.25, 0.5, 1.0))])
    *kept, _ = first.results
    jsonl.write_rows(first.files.results, kept)
    again = await run_again()
    assert again.summary.kept == 2
    earned = [row["reward"] for row in again.results]
    assert again.summary.mean_reward == sum(earned) / 3


async def test_failed_task_is_retried_with_attempt_number(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(0, act="fail_twice"), make_task(1)])
    assert (first.summary.scored, first.summary.failed) == (1, 1)
    second = await run_again()
    assert (second.summary.scored, second.summary.failed) == (1, 1)
    third = await run_again()
    assert (third.summary.scored, third.summary.failed) == (2, 0)
    assert [row["_ng_attempt_index"] for row in third.failures] == [0, 1]
    assert {row["_ng_task_index"]: row.get("_ng_attempt_index") for row in third.results} == {0: 2, 1: None}


@pytest.mark.parametrize(("limit", "attempts"), [(None, 3), ("1", 1), ("5", 5)])
async def test_task_with_too_many_failures_is_skipped(run_tasks, run_again, make_task, monkeypatch, limit, attempts):
    monkeypatch.delenv(MAX_ATTEMPTS_ENV_VAR, raising=False)
    if limit:
        monkeypatch.setenv(MAX_ATTEMPTS_ENV_VAR, limit)
    await run_tasks([make_task(0, act="crash"), make_task(1)])
    for _ in range(5):
        run = await run_again()
    assert len(run.failures) == attempts
    assert (run.summary.scored, run.summary.failed_by_cause) == (1, {"agent_failed": 1})


async def test_terminal_failure_is_not_retried(run_tasks, run_again, make_task, agent):
    body = '{"_ng_failure_class": "task_is_broken", "_ng_failure_terminal": true}'
    await run_tasks([make_task(0, act="answer", bytes=body), make_task(1)])
    agent.begin_again()
    run = await run_again()
    assert agent.state()["begun"] == []
    assert run.summary.failed_by_cause == {"task_is_broken": 1}
    assert run.summary.planned == run.summary.scored + run.summary.failed + run.summary.unresolved


async def test_unkept_result_is_requested_again(run_tasks, run_again, make_task, agent):
    await run_tasks([make_task(0, act="answer", bytes='{"_ng_no_persist": true}')])
    agent.begin_again()
    run = await run_again()
    assert agent.state()["begun"] == ["0-0"]
    assert (run.summary.failed, run.summary.unresolved) == (0, 1)


@pytest.mark.parametrize("cut", [1, 2, 60, 190])
async def test_torn_last_line_is_run_again(run_tasks, run_again, make_task, cut):
    first = await run_tasks([make_task(n) for n in range(4)])
    _, *lines = first.files.results.read_bytes().splitlines(keepends=True)
    assert len(lines[-1]) > 190
    first.files.results.write_bytes(b"".join(lines)[:-cut])
    again = await run_again()
    assert again.keys == [(n, 0) for n in range(4)]
    # If only the newline is missing, the line is complete.
    assert again.summary.kept == (3 if cut == 1 else 2)


async def test_torn_last_line_may_be_huge_or_alone(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(0, text="x" * 3_000_000)])
    first.files.results.write_bytes(first.files.results.read_bytes()[:-5])
    assert (await run_again()).keys == [(0, 0)]


async def test_torn_failure_does_not_count_as_attempt(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(0, act="crash")])
    first.files.failures.write_bytes(first.files.failures.read_bytes()[:-10])
    again = await run_again()
    assert [row["_ng_attempt_index"] for row in again.failures] == [0]


async def test_broken_middle_line_is_reported_and_kept(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(n) for n in range(3)])
    lines = first.files.results.read_bytes().splitlines()
    broken = b"\n".join([lines[0], lines[1][:50], lines[2], b""])
    first.files.results.write_bytes(broken)
    with pytest.raises(DataError, match=r"out\.jsonl:2:\d+: not valid JSON"):
        await run_again()
    assert first.files.results.read_bytes() == broken


async def test_result_without_task_is_reported_with_its_line(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(0)])
    with jsonl.Appender(first.files.results) as file:
        file.write({"reward": 1.0})
    with pytest.raises(DataError, match=r"out\.jsonl:2: '_ng_task_index' is missing"):
        await run_again()


async def test_unplanned_results_do_not_count(run_tasks, run_again, make_task, caplog):
    first = await run_tasks([make_task(0)])
    with jsonl.Appender(first.files.results) as file:
        for repeat in range(3):
            file.write({"_ng_task_index": 7, "_ng_rollout_index": repeat, "reward": 1.0})
    with pytest.raises(DataError, match=r"out\.jsonl:2, .*out\.jsonl:4: added or changed since"):
        await run_again()
    run = await run_again(resume_from_cache="force")
    assert (run.summary.planned, run.summary.scored, run.summary.unresolved) == (1, 1, 0)
    assert "3 rollouts scored earlier do not belong to a task of this run" in caplog.text


async def test_resume_without_earlier_run_runs_everything(run_again, make_task):
    run = await run_again([make_task(0)])
    assert (run.summary.scored, run.summary.kept) == (1, 0)


async def test_results_without_their_tasks_are_kept(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(0)])
    first.files.materialized.unlink()
    before = first.files.results.read_bytes()
    with pytest.raises(DataError, match=r"cannot be resumed without \S+out_materialized_inputs\.jsonl"):
        await run_again([make_task(0)])
    assert first.files.results.read_bytes() == before


async def test_resumed_run_does_not_retry_exhausted_tasks(run_tasks, run_again, make_task, monkeypatch):
    monkeypatch.setenv(MAX_ATTEMPTS_ENV_VAR, "2")
    await run_tasks([make_task(n, act="crash") for n in range(3)])
    await run_again()
    run = await run_again()
    assert (run.summary.given_up, run.summary.failed_by_cause) == (3, {"agent_failed": 3})
    assert len(run.failures) == 6


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5"])
async def test_invalid_attempt_limit_is_reported(run_tasks, run_again, make_task, monkeypatch, limit):
    await run_tasks([make_task(0)])
    monkeypatch.setenv(MAX_ATTEMPTS_ENV_VAR, limit)
    with pytest.raises(ConfigError, match=f"{MAX_ATTEMPTS_ENV_VAR}={limit}: expected an integer of at least 1"):
        await run_again()


async def test_edited_line_is_rejected_unless_forced(run_tasks, run_again, make_task, agent):
    first = await run_tasks([make_task(n) for n in range(5)])
    results = first.files.results
    lines = results.read_bytes().splitlines(keepends=True)
    edited = [*lines[:2], lines[2].replace(b'"reward":1.0', b'"reward":0.5'), *lines[3:]]
    results.write_bytes(b"".join(edited))
    with pytest.raises(
        DataError,
        match=rf"^{re.escape(str(results))}:3: added or changed since the run wrote the file\. .*--resume=force",
    ):
        await run_again()
    assert results.read_bytes() == b"".join(edited)
    forced = await run_again(resume_from_cache="force")
    assert forced.summary.kept == 5
    assert (await run_again()).summary.kept == 5


@pytest.mark.parametrize("kept", [[0, 2, 3], [4, 3, 2, 1, 0]])
async def test_removed_and_moved_lines_are_accepted(run_tasks, run_again, make_task, kept):
    first = await run_tasks([make_task(n) for n in range(5)])
    lines = first.files.results.read_bytes().splitlines(keepends=True)
    first.files.results.write_bytes(b"".join(lines[at] for at in kept))
    again = await run_again()
    assert (again.summary.scored, again.summary.kept) == (5, len(kept))


@pytest.mark.parametrize("share", [None, 0.0, 0.5, 0.9])
async def test_lost_events_do_not_prevent_a_resume(run_tasks, run_again, make_task, share):
    first = await run_tasks([make_task(n) for n in range(5)])
    ledger = first.files.ledger
    if share is None:
        # A run of an older version has no ledger, and a copy may have been made without it.
        ledger.unlink()
    else:
        os.truncate(ledger, int(ledger.stat().st_size * share))
    assert (await run_again()).summary.kept == 5
    first.files.results.write_bytes(first.files.results.read_bytes().replace(b'"reward":1.0', b'"reward":2.0'))
    with pytest.raises(DataError, match=r"out\.jsonl:1, .*out\.jsonl:5: added or changed since"):
        await run_again()


async def test_truncated_results_are_resumed(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(n) for n in range(5)])
    os.truncate(first.files.results, first.files.results.stat().st_size - 20)
    again = await run_again()
    assert (again.summary.scored, again.summary.kept) == (5, 4)


async def test_run_without_ledger_is_resumed(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(n) for n in range(5)])
    first.files.ledger.unlink()
    assert (await run_again()).summary.kept == 5


async def test_removed_event_is_noticed(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(n) for n in range(5)])
    lines = first.files.ledger.read_bytes().splitlines(keepends=True)
    removed = next(line for line in lines if b'"event":"ended"' in line)
    first.files.ledger.write_bytes(b"".join(line for line in lines if line != removed))
    again = await run_again()
    assert (again.summary.planned, again.summary.kept, len(again.keys)) == (5, 5, 5)
