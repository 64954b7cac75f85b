"""Track the tasks whose rollouts are verified together, and inform resources servers about rollouts that ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_reply
from nemo_gym.context.group import GROUP_MEMBERS_PATH, LEAST_GROUP, GroupPlace
from nemo_gym.data.media import with_media
from nemo_gym.errors import DataError, EnvironmentFailed, JudgeFailed, RolloutError, ServerCallError
from nemo_gym.http.reply import Timeouts
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.row import Row

logger = logging.getLogger(__name__)

NEWS = Timeouts(total_s=30.0)

Response = Callable[[], JsonObject | None]
"""A function that returns the response of an ended rollout."""


class GroupKey(NamedTuple):
    """The resources server and the task number that the rollouts of a group have in common."""

    server: str
    task: int


@dataclass
class _Task:
    """The rollouts of one task, by their repeat numbers."""

    key: GroupKey
    repeats: list[int]
    pending: set[int]
    """The repeats that are running or still have to run."""
    responses: dict[int, Response] = field(default_factory=dict)
    """The responses of the repeats that have a reward."""
    absent: dict[int, str] = field(default_factory=dict)
    """The repeats that the server will never receive, with the reasons."""

    def place(self, name: str, repeat: int) -> GroupPlace:
        return GroupPlace(name, len(self.repeats), self.repeats.index(repeat))


class GroupedTasks:
    """The tasks of one run that are in progress and are verified in groups."""

    def __init__(self, client: ServerClient, servers: Mapping[str, str]) -> None:
        """`servers` maps each agent to the resources server that verifies its groups."""
        self._client = client
        self._servers = servers
        # Use a random name, because the servers may still have groups of other runs, or of this run before it was
        # killed and resumed.
        self._name = uuid4().hex[:16]
        self._tasks: dict[GroupKey, _Task] = {}

    def are_of(self, agent: str | None) -> bool:
        """Return whether the rollouts of an agent are verified in groups."""
        return str(agent) in self._servers

    def key_of(self, row: Row) -> GroupKey | None:
        """Return the key of a rollout's group, or None if the rollout is not verified in a group."""
        server = self._servers.get(str(row.agent))
        return None if server is None or row.task_index is None else GroupKey(server, row.task_index)

    def expect(
        self,
        row: Row,
        repeats: Iterable[int],
        *,
        pending: Iterable[int] | None = None,
        responses: Mapping[int, Response] | None = None,
        absent: Mapping[int, str] | None = None,
    ) -> None:
        """Register the task of a row if its rollouts, which are about to start, are verified in a group.

        `repeats` are the repeat numbers of the task. `pending` are those that still have to run, by default all. Each
        other repeat is in `responses`, to be compared with the pending ones, or in `absent` with a reason.
        """
        ordered, key = sorted(repeats), self.key_of(row)
        if key is not None and len(ordered) >= LEAST_GROUP:
            pending_now = set(ordered if pending is None else pending)
            self._tasks[key] = _Task(key, ordered, pending_now, dict(responses or {}), dict(absent or {}))

    def header_of(self, row: Row) -> str | None:
        """Return the header with a rollout's place in its group, or None if the rollout is not verified in a group."""
        task = self._task_of(row)
        return None if task is None else task.place(self._name_of(row), row.key.repeat).header

    async def announce(self, row: Row) -> None:
        """Before another rollout of a task starts, inform the resources server about the task's ended rollouts."""
        task = self._task_of(row)
        if task is not None and (task.responses or task.absent):
            await self._post(row, task, present=task.responses, absent=task.absent)

    async def ended(self, row: Row, record: Record) -> None:
        """Record the end of a rollout after its last attempt.

        Inform the resources server if it may still wait for this rollout, or if the task is complete.
        """
        task = self._task_of(row)
        if task is None:
            return
        repeat = row.key.repeat
        task.pending.discard(repeat)
        if not task.pending:
            del self._tasks[task.key]
            await self._post(row, task, present={}, absent={}, over=True)
        elif record.outcome is Outcome.SCORED:
            response = record.row.response
            task.responses[repeat] = lambda: response
        else:
            task.absent[repeat] = record.cause or str(record.outcome)
            # If the judge failed, the server has received the rollout's response and does not wait for it.
            if record.cause != JudgeFailed.failure_class:
                await self._post(row, task, present={}, absent={repeat: task.absent[repeat]})

    def _task_of(self, row: Row) -> _Task | None:
        key = self.key_of(row)
        return None if key is None or row.repeat_index is None else self._tasks.get(key)

    def _name_of(self, row: Row) -> str:
        return f"{self._name}-{row.task_index}"

    async def _post(
        self,
        row: Row,
        task: _Task,
        *,
        present: Mapping[int, Response],
        absent: Mapping[int, str],
        over: bool = False,
    ) -> None:
        """Inform the server about members of a group. Only log a failed call, because it just delays other members."""
        server, sent = task.key.server, row.without_outcome().without_policy()
        problem: Exception
        try:
            news = {
                "group": self._name_of(row),
                "absent": {str(task.repeats.index(repeat)): reason for repeat, reason in absent.items()},
                "present": {
                    str(task.repeats.index(repeat)): {
                        **with_media(sent.of_repeat(repeat).fields),
                        "response": response(),
                    }
                    for repeat, response in present.items()
                },
                "over": over,
            }
            reply = await self._client.post(server, GROUP_MEMBERS_PATH, json=news, timeouts=NEWS)
            if reply.ok:
                return
            problem = failure_of_reply(
                reply.status, await reply.read(), server=server, during=GROUP_MEMBERS_PATH, otherwise=EnvironmentFailed
            )
        except (ServerCallError, RolloutError, DataError) as error:
            problem = error
        logger.warning("%s was not informed about the ended rollouts of task %s: %s", server, row.task_index, problem)
