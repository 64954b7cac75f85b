"""Rows of `run_examples` that are verified together."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from nemo_gym.calls.client import ServerClient
from nemo_gym.errors import JudgeFailed
from nemo_gym.published.collection_helper import RolloutCollectionHelper
from tests.rollouts.groups.serving import AGENT, AnsweringElsewhere, Row, servers


class Helper(RolloutCollectionHelper):
    """A helper for these servers, which have no head server."""

    client: Any = None

    def setup_server_client(self, head_server_config: Any = None) -> ServerClient:
        return self.client


@pytest.mark.parametrize("numbers", [True, False])
async def test_repeats_in_one_batch_are_a_group(numbers):
    rows = [
        {
            "responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "_ng_task_index": task,
            **({"_ng_rollout_index": repeat} if numbers else {}),
        }
        for task in (7, 9)
        for repeat in range(3)
    ]  # fmt: skip
    async with servers() as client:
        helper = Helper(client=client())
        ended = [await each for each in helper.run_examples(rows)]
    assert sorted(result["reward"] for _, result in ended) == [1 / 6, 1 / 6, 2 / 6, 2 / 6, 3 / 6, 3 / 6]
    assert {id(row) for row, _ in ended} == set(map(id, rows))


async def test_tasks_of_different_servers_may_share_numbers():
    rows = [
        {
            "responses_create_params": {"input": "Hi"}, "agent_ref": {"name": name},
            "_ng_task_index": 0, "_ng_rollout_index": repeat,
        }
        for name in (AGENT, "other")
        for repeat in range(2)
    ]  # fmt: skip
    async with servers(other=AnsweringElsewhere) as client:
        ended = [(await each)[1] for each in Helper(client=client()).run_examples(rows)]
    assert Counter((row["agent_ref"]["name"], row["reward"]) for row in ended) == {
        (AGENT, 1 / 3): 1, (AGENT, 2 / 3): 1, ("other", 1 / 3): 1, ("other", 2 / 3): 1,
    }  # fmt: skip
    assert {row["_ng_group"]["size"] for row in ended} == {2}


async def test_batches_with_the_same_numbers_do_not_mix():
    def batch(name: str) -> list[Row]:
        row = {"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "_ng_task_index": 0}
        return [{**row, "_ng_rollout_index": repeat, "run": name} for repeat in range(4)]

    async with servers() as client:
        iterators = [Helper(client=client()).run_examples(batch(name)) for name in ("one", "other")]
        ended = [(await each)[1] for iterator in iterators for each in iterator]
    assert sorted(row["reward"] for row in ended) == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4]


def by_repeats(run: str = "") -> list[Row]:
    """Return the rows of three groups, with all first repeats first."""
    row = {"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "run": run}
    return [{**row, "_ng_task_index": task, "_ng_rollout_index": n} for n in range(3) for task in (4, 5, 6)]


async def test_one_place_is_enough_for_groups():
    semaphore = asyncio.Semaphore(1)
    async with servers() as client:
        iterators = [
            Helper(client=client()).run_examples(by_repeats(run), semaphore=semaphore) for run in ("one", "other")
        ]
        ended = [(await each)[1] for iterator in iterators for each in iterator]
    assert Counter(row["reward"] for row in ended) == {1 / 6: 6, 2 / 6: 6, 3 / 6: 6}


async def test_single_row_of_a_group_fails():
    rows = by_repeats()[:1]
    async with servers() as client:
        (ending,) = Helper(client=client()).run_examples(rows)
        with pytest.raises(JudgeFailed, match="only one of the 1 rollouts of task 4 has a response") as failed:
            await ending
    assert failed.value.row == rows[0]
