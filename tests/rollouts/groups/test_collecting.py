"""Collections of tasks whose rollouts are verified together: members that fail or were stored earlier."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from nemo_gym import InvalidTask, JudgeFailed, ModelFailed, ServerLost
from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.job import AttemptSettings, RunFiles
from nemo_gym.rollouts.ledger import read
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.runner import AttemptLimits
from nemo_gym.schemas.row import Row as RowView
from nemo_gym.testing import reply
from tests.conftest import PATIENCE_S
from tests.rollouts.groups.serving import (
    AGENT,
    SERVER,
    acts,
    collected,
    failing,
    nothing,
    rewards,
    servers,
    written,
)
from tests.rows import line_count, rows_of
from tests.waiting import async_until


async def test_rewards_depend_on_the_whole_group(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=3))
    rows = rows_of(files.results)
    assert len(rows) == 12
    for row in rows:
        assert row["lengths"] == [1, 2, 3, 4]
        assert row["reward"] == (row["_ng_rollout_index"] + 1) / 10
        assert row["_ng_group"] == {"size": 4, "compared": 4, "missing": []}
        assert not [key for key in row if "failure" in key]
    assert not files.ungraded.exists()


async def test_graded_members_keep_the_times_of_their_rollouts(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    scored = read(files.results).scored
    assert len(scored) == 4
    assert all(ended.seconds is not None for ended in scored.values())


async def test_failed_member_is_named_to_the_others(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 1 / 8, 2: 3 / 8, 3: 4 / 8}
    assert {str(row["_ng_group"]["missing"]) for row in rows_of(files.results)} == {"['1: model_failed']"}
    assert [row["_ng_failure_class"] for row in rows_of(files.failures)] == ["model_failed"]


async def test_only_member_fails_with_its_response(tmp_path):
    async def act(row: RowView) -> None:
        if row.key.repeat:
            raise ModelFailed("no memory")

    acts.before = act
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), num_repeats=2)
    failed = {row["_ng_rollout_index"]: row for row in rows_of(files.failures)}
    assert (rows_of(files.results), failed[0]["_ng_failure_class"]) == ([], "judge_failed")
    assert failed[0]["_ng_failure_judge_error"] == (
        "shares: only one of the 2 rollouts of task 0 has a response, so it cannot be compared; missing: "
        "1: model_failed"
    )
    assert failed[0]["response"]["output"]
    assert "reward" not in failed[0]


async def test_retried_member_is_waited_for(tmp_path):
    acts.before = failing(ServerLost("the agent was restarted"), repeat=2, attempts=2)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert len(rows_of(files.failures)) == 2


async def test_members_need_no_slot_after_their_end(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=2), num_samples_in_parallel=1)
    assert Counter(row["reward"] for row in rows_of(files.results)) == {0.1: 2, 0.2: 2, 0.3: 2, 0.4: 2}


async def stopped(client: Any, source: Any, tasks: int = 1, **settings: Any) -> RunFiles:
    """Collect until only the last rollout is running, and the groups of the other tasks have failed. Cancel there."""
    is_running = asyncio.Event()

    async def hold(row: RowView) -> None:
        if row.key == (tasks - 1, 3):
            is_running.set()
            await asyncio.Event().wait()

    acts.before = hold
    files = RunFiles(results=source.with_name("out.jsonl"))
    collecting = asyncio.create_task(collected(client, source, **settings))
    await is_running.wait()
    await async_until(lambda: line_count(files.ungraded) == 4 * tasks - 1, PATIENCE_S)
    await async_until(lambda: line_count(files.failures) == 4 * (tasks - 1), PATIENCE_S)
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    return files


def count_sent() -> Counter[str]:
    """Return the numbers of attempts of each rollout from now on."""
    sent: Counter[str] = Counter()

    async def count(row: RowView) -> None:
        sent[str(row.key)] += 1

    acts.before = count
    return sent


async def test_ended_members_do_not_run_again_after_resume(tmp_path):
    source = written(tmp_path / "in.jsonl")
    async with servers() as client:
        files = await stopped(client(), source)
        assert (rows_of(files.results), len(rows_of(files.ungraded))) == ([], 3)
        sent = count_sent()
        await collected(client(), source, resume_from_cache=True)
    assert sent == {"0:3": 1}
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert not files.ungraded.exists()


async def test_torn_ungraded_line_runs_again(tmp_path):
    source = written(tmp_path / "in.jsonl")
    async with servers() as client:
        files = await stopped(client(), source)
        last = rows_of(files.ungraded)[-1]["_ng_rollout_index"]
        files.ungraded.write_bytes(files.ungraded.read_bytes()[:-100])
        sent = count_sent()
        await collected(client(), source, resume_from_cache=True)
    assert sent == {f"0:{last}": 1, "0:3": 1}
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}


async def test_members_whose_judge_failed_run_again_after_resume(tmp_path):
    source = written(tmp_path / "in.jsonl", tasks=2)

    async def fail() -> None:
        raise JudgeFailed("the endpoint is down")

    acts.verifying = fail
    async with servers() as client:
        files = await stopped(client(), source, tasks=2)
        acts.verifying, sent = nothing, count_sent()
        await collected(client(), source, resume_from_cache=True)
    assert sent == {"0:0": 1, "0:1": 1, "0:2": 1, "0:3": 1, "1:3": 1}
    assert Counter(row["reward"] for row in rows_of(files.results)) == {0.1: 2, 0.2: 2, 0.3: 2, 0.4: 2}


async def test_ungraded_members_of_another_model_are_rejected(tmp_path):
    source = written(tmp_path / "in.jsonl")
    async with servers() as client:
        await stopped(client(), source, subject=RunSubject(policy_model_name="qwen"))
        acts.before = nothing
        with pytest.raises(DataError, match="another model: policy_model_name qwen → llama"):
            await collected(client(), source, subject=RunSubject(policy_model_name="llama"), resume_from_cache=True)


async def test_ended_group_is_graded_after_resume(tmp_path):
    source, is_verifying = written(tmp_path / "in.jsonl"), asyncio.Event()

    async def hold() -> None:
        is_verifying.set()
        await asyncio.Event().wait()

    async def refuse(row: RowView) -> None:
        raise ModelFailed("nothing has to run")

    acts.verifying = hold
    async with servers() as client:
        collecting = asyncio.create_task(collected(client(), source))
        await is_verifying.wait()
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        acts.verifying, acts.before = nothing, refuse
        files = await collected(client(), source, resume_from_cache=True)
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert rows_of(files.failures) == []


async def test_forced_resume_runs_ungraded_members_again(tmp_path):
    source = written(tmp_path / "in.jsonl")
    async with servers() as client:
        files = await stopped(client(), source)
        sent = count_sent()
        await collected(client(), source, resume_from_cache="force")
    assert sent == {"0:0": 1, "0:1": 1, "0:2": 1, "0:3": 1}
    assert len(rows_of(files.results)) == 4


async def test_new_run_does_not_use_ungraded_members(tmp_path):
    source = written(tmp_path / "in.jsonl")
    async with servers() as client:
        files = await stopped(client(), source)
        sent = count_sent()
        with pytest.raises(DataError, match=r"out_run/ungraded\.jsonl contains rollouts of an earlier run"):
            await collected(client(), source)
        await collected(client(), source, overwrite=True)
    assert sent == {"0:0": 1, "0:1": 1, "0:2": 1, "0:3": 1}
    assert len(rows_of(files.results)) == 4


async def test_failure_is_written_before_others_are_informed(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    failed_first: list[bool] = []

    async def look() -> None:
        failed_first.append((tmp_path / "out_failures.jsonl").read_bytes() != b"")

    acts.verifying = look
    async with servers() as client:
        await collected(client(), written(tmp_path / "in.jsonl"))
    assert failed_first == [True]


async def test_failed_members_are_compared_after_resume(tmp_path):
    source = written(tmp_path / "in.jsonl", tasks=2)
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), source, max_attempts=1)
        assert len(rows_of(files.results)) == 6
        sent = count_sent()
        await collected(client(), source, max_attempts=3, resume_from_cache=True)
    assert sent == {"0:1": 1, "1:1": 1}
    late = [row for row in rows_of(files.results) if row["_ng_rollout_index"] == 1]
    assert [(row["reward"], row["lengths"], row["_ng_group"]["compared"]) for row in late] == [
        (0.2, [1, 2, 3, 4], 4)
    ] * 2


async def test_given_up_members_are_not_waited_for_after_resume(tmp_path):
    source = written(tmp_path / "in.jsonl")

    async def act(row: RowView) -> None:
        await failing(ModelFailed("no memory"), repeat=1)(row)
        await failing(InvalidTask("no such thing"), repeat=2)(row)

    acts.before = act
    async with servers() as client:
        files = await collected(client(), source, max_attempts=1)
        acts.before = nothing
        await collected(client(), source, max_attempts=2, resume_from_cache=True)
    (late,) = [row for row in rows_of(files.results) if row["_ng_rollout_index"] == 1]
    assert (late["lengths"], late["_ng_group"]["missing"]) == ([1, 2, 4], ["2: invalid_task"])


async def test_added_repeats_are_compared_with_earlier_ones(tmp_path):
    source = written(tmp_path / "in.jsonl", tasks=2)
    async with servers() as client:
        await collected(client(), source, num_repeats=2)
        files = await collected(client(), source, num_repeats=4, resume_from_cache=True)
    rows = rows_of(files.results)
    assert len(rows) == 8
    assert {str(row["lengths"]) for row in rows if row["_ng_rollout_index"] > 1} == {"[1, 2, 3, 4]"}


async def test_output_of_the_agent_is_graded_after_tokens_replaced_it():
    said, limits = reply("xxx").model_dump(mode="json"), AttemptLimits.of(AttemptSettings(), 1)
    row = RowView({"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "_ng_task_index": 0})
    finals = []
    async with servers() as client:
        groups = GroupedTasks(client(), {AGENT: SERVER}, limits)
        groups.expect(row, range(2))
        for repeat in range(2):
            sent = row.of_repeat(repeat)
            recorded = {"response": reply("x").model_dump(mode="json")}
            if repeat:
                recorded["_ng_token_capture"] = {"is_rebuilt": True, "agent_output": said["output"]}
            ended = Record(Outcome.UNRESOLVED, sent.with_fields(recorded), is_ungraded=True)
            finals += [final async for _, final in groups.end(sent, ended)]
    assert [final.reward for final in finals] == [1 / 4, 3 / 4]
    assert {final.row.response["output"][0]["content"][0]["text"] for final in finals} == {"x"}


async def test_many_groups_at_once_are_all_complete(tmp_path):
    async with servers() as client:
        settings = {"num_repeats": 8, "num_samples_in_parallel": 1024}
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=64), **settings)
    rows = rows_of(files.results)
    assert len(rows) == 512
    assert {row["_ng_group"]["compared"] for row in rows} == {8}
