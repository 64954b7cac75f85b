"""The pace of a trainer's batch: which rollouts begin while finished groups wait for the trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import AttemptLimits
from nemo_gym.schemas.row import Row
from nemo_gym.training.batch import Batch, Task
from nemo_gym.training.policies import PolicyRunner

LIMITS = AttemptLimits.of(AttemptSettings(), 1)


class Answering(PolicyRunner):
    """Scores each rollout at once."""

    def __init__(self) -> None:
        self.begun = 0

    async def run(self, row: Row) -> Record:
        self.begun += 1
        return Record(Outcome.SCORED, row.with_fields({"reward": 1.0}), reward=1.0)


class Up(RunWatch):
    def __init__(self) -> None:
        pass

    async def watch(self) -> Any:
        await asyncio.Event().wait()


def tasks() -> Iterator[Task]:
    for number in count():
        fields = {"_ng_task_index": number, "agent_ref": {"name": "agent"}}
        yield Task(fields, Row(fields))


async def test_few_rollouts_begin_before_groups_are_taken():
    groups = GroupedTasks(SimpleNamespace(address_book=AddressBook({})), {}, LIMITS)
    batch = Batch(runner := Answering(), groups, LIMITS, Up(), in_flight=2, failed_rollouts="mask")
    running = asyncio.create_task(batch.run(tasks(), repeats=3))
    for _ in range(100):
        await asyncio.sleep(0)
    assert runner.begun == 3 + 1
    for _ in range(5):
        assert (await batch.next_group()).rewards == [1.0, 1.0, 1.0]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
