"""Collections of tasks whose rollouts are verified together: members that fail, return late or were stored earlier."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from nemo_gym import InvalidTask, ModelFailed, ServerLost
from nemo_gym.schemas.row import Row as RowView
from tests.conftest import PATIENCE_S
from tests.rollouts.groups.serving import (
    SERVER,
    acts,
    collected,
    failing,
    hold_last_members,
    nothing,
    rewards,
    servers,
    written,
)
from tests.rows import rows_of
from tests.waiting import async_until


async def test_rewards_depend_on_the_whole_group(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=3))
        assert len(client.groups.groups) == 0
    rows = rows_of(files.results)
    assert len(rows) == 12
    for row in rows:
        assert row["lengths"] == [1, 2, 3, 4]
        assert row["reward"] == (row["_ng_rollout_index"] + 1) / 10
        assert row["_ng_group"] == {"size": 4, "compared": 4, "missing": []}


async def test_failed_member_is_named_to_the_others(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 1 / 8, 2: 3 / 8, 3: 4 / 8}
    assert {str(row["_ng_group"]["missing"]) for row in rows_of(files.results)} == {"['1: model_failed']"}
    assert [row["_ng_failure_class"] for row in rows_of(files.failures)] == ["model_failed"]


def expire_once_waiting(members: int) -> None:
    """End the wait for the rest of a group as soon as this many members wait.

    With a short timeout, it could end before.
    """

    def waiting(groups: Any) -> list[Any]:
        return [each for each in groups._all() if len(each.waiting) == members]

    async def expire(row: RowView, calling: asyncio.Future[Any]) -> None:
        groups = acts.groups.groups
        if row.key.repeat == 0:
            await async_until(lambda: waiting(groups), PATIENCE_S)
            groups._expire(waiting(groups)[0])

    acts.waiting = expire


async def test_lost_news_of_a_failure_only_cost_time(tmp_path, caplog):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    expire_once_waiting(3)
    async with servers() as client:
        without_server = client()
        without_server.address_book.servers.pop(SERVER)
        files = await collected(without_server, written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 1 / 8, 2: 3 / 8, 3: 4 / 8}
    assert {str(row["_ng_group"]["missing"]) for row in rows_of(files.results)} == {"['1: not arrived in 1000 s']"}
    assert "shares was not informed about the ended rollouts of task 0: no server is named 'shares'" in caplog.text


async def test_retried_member_is_waited_for(tmp_path):
    acts.before = failing(ServerLost("the agent was restarted"), repeat=2, attempts=2)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert len(rows_of(files.failures)) == 2


async def test_member_whose_reward_was_lost_is_compared_again(tmp_path):
    others_are_recorded = asyncio.Event()
    ended: Counter[str] = Counter()

    async def lose_the_reward(row: RowView) -> None:
        if row.key.repeat == 0 and not row.attempt:
            await others_are_recorded.wait()
            raise ServerLost("the agent was restarted")

    def on_record(record, summary) -> None:
        ended[record.outcome] += 1
        if ended.total() == 3:
            others_are_recorded.set()

    acts.after = lose_the_reward
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), on_record=on_record)
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}


async def test_member_lost_during_verification_is_scored(tmp_path):
    is_verifying, is_sent_again, others_are_recorded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        is_verifying.set()
        await is_sent_again.wait()

    async def lose_the_call(row: RowView, calling: asyncio.Future[Any]) -> None:
        if row.key.repeat == 0 and not row.attempt:
            await is_verifying.wait()
            calling.cancel()
            raise ServerLost("the agent was restarted")

    async def wait_for_others(row: RowView) -> None:
        if row.attempt:
            is_sent_again.set()
            await others_are_recorded.wait()

    def on_record(record, summary) -> None:
        if summary.scored == 3:
            others_are_recorded.set()

    acts.verifying, acts.waiting, acts.before = hold, lose_the_call, wait_for_others
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), on_record=on_record)
        assert len(client.groups.groups) == 0
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert {row["_ng_group"]["compared"] for row in rows_of(files.results)} == {4}


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
        acts.before = nothing
        sent = Counter()

        async def count(row: RowView) -> None:
            sent[str(row.key)] += 1

        acts.before = count
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


async def test_members_beyond_the_wait_are_compared_later(tmp_path):
    others_are_recorded = asyncio.Event()

    async def be_late(row: RowView) -> None:
        if row.key.repeat == 3:
            await others_are_recorded.wait()

    def on_record(record, summary) -> None:
        if summary.scored == 3:
            others_are_recorded.set()

    acts.before = be_late
    expire_once_waiting(3)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), on_record=on_record)
        assert len(client.groups.groups) == 0
    rows = rows_of(files.results)
    assert [row["_ng_group"]["missing"] for row in rows] == [["3: not arrived in 1000 s"]] * 3 + [[]]
    assert rows[-1]["lengths"] == [1, 2, 3, 4]


async def test_runs_on_the_same_servers_do_not_mix(tmp_path):
    hold_last_members(2 * 8 * 3)
    async with servers() as client:
        both = await asyncio.gather(
            *(
                collected(client(), written(tmp_path / f"{name}_in.jsonl", tasks=8, run=name), name)
                for name in ("one", "other")
            )
        )
    for files in both:
        assert Counter(row["reward"] for row in rows_of(files.results)) == {0.1: 8, 0.2: 8, 0.3: 8, 0.4: 8}


async def test_many_groups_at_once_are_all_complete(tmp_path):
    async with servers() as client:
        settings = {"num_repeats": 8, "num_samples_in_parallel": 1024}
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=64), **settings)
        assert len(client.groups.groups) == 0
    rows = rows_of(files.results)
    assert len(rows) == 512
    assert {row["_ng_group"]["compared"] for row in rows} == {8}
