"""The pace of a trainer's batch: which rollouts begin while finished groups wait for the trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from nemo_gym.rollouts.attempts import AttemptLimits
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.schemas.row import Row
from nemo_gym.training.batch import Batch, Task
from nemo_gym.training.policies import PolicyRunner

NOT_CALLED: Any = None
LIMITS = AttemptLimits.of(AttemptSettings(), 1)


class Answering(PolicyRunner):
    """Scores each rollout at once. Some agents of its run are verified in groups."""

    def __init__(self) -> None:
        self.groups = GroupedTasks(NOT_CALLED, {"grouped_agent": "ranking"})
        self.begun = 0

    async def run(self, row: Row) -> Record:
        self.begun += 1
        return Record(Outcome.SCORED, row.with_fields({"reward": 1.0}), reward=1.0)

    async def ended(self, row: Row, record: Record) -> None:
        return None


class Up(RunWatch):
    def __init__(self) -> None:
        pass

    async def watch(self) -> Any:
        await asyncio.Event().wait()


def tasks(agent: str) -> Iterator[Task]:
    for number in count():
        fields = {"_ng_task_index": number, "agent_ref": {"name": agent}}
        yield Task(fields, Row(fields))


# The rollouts of a group wait for each other, so one that has begun is completed.
@pytest.mark.parametrize(("agent", "most"), [("plain_agent", 3 + 1), ("grouped_agent", 3 + 3)])
async def test_few_rollouts_begin_before_groups_are_taken(agent, most):
    batch = Batch(runner := Answering(), LIMITS, Up(), in_flight=2, failed_rollouts="mask")
    running = asyncio.create_task(batch.run(tasks(agent), repeats=3))
    for _ in range(100):
        await asyncio.sleep(0)
    assert runner.begun == most
    for _ in range(5):
        assert (await batch.next_group()).rewards == [1.0, 1.0, 1.0]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
