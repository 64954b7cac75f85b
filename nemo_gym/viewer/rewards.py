"""The rewards of a run's tasks, added up by a query of the index."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.entry import REPEAT_BITS
from nemo_gym.viewer.library import RunView

UNNAMED = "rollouts"
"""The agent's name for rollouts that do not name their agent, as in `ng eval compare`."""
SUMS = (
    f"agent, id >> {REPEAT_BITS}, COUNT(reward), TOTAL(reward), TOTAL(reward * reward), COUNT(*) - COUNT(reward),"
    " MIN(reward), MAX(reward), TOTAL(reward NOT IN (0, 1))"
)


class TaskId(NamedTuple):
    """A task of an agent."""

    agent: str
    task: int


class TaskSums(NamedTuple):
    """The rewards of one task, added up."""

    scored: int
    total: float
    squares: float
    failed: int
    """The number of rollouts without a reward."""

    @property
    def mean(self) -> float:
        return self.total / self.scored


@dataclass
class RunRewards:
    """The rewards of a run, by task."""

    run: RunView
    tasks: dict[TaskId, TaskSums] = field(default_factory=dict)
    lows: dict[str, float] = field(default_factory=dict)
    """The lowest reward of each agent."""
    highs: dict[str, float] = field(default_factory=dict)
    fractional: set[str] = field(default_factory=set)
    """The agents with rewards other than 0 and 1."""

    @classmethod
    def read(cls, run: RunView, selected: Filter) -> RunRewards:
        """Add up the selected rollouts that have an outcome."""
        found = cls(run)
        with run.index.selection(selected) as (db, rollouts):
            ended = Selected(rollouts.tables, [*rollouts.conditions, "outcome != 'unresolved'"])
            rows = db.execute(f"SELECT {SUMS} {ended.clause} GROUP BY 2, 1", rollouts.values)
            for agent, task, count, total, squares, failed, low, high, fractions in rows:
                name = agent or UNNAMED
                found.tasks[TaskId(name, task)] = TaskSums(count, total, squares, failed)
                if count:
                    found.lows[name] = min(low, found.lows.get(name, inf))
                    found.highs[name] = max(high, found.highs.get(name, -inf))
                if fractions:
                    found.fractional.add(name)
        return found

    @property
    def agents(self) -> list[str]:
        """The names of the run's agents."""
        return list(dict.fromkeys(task.agent for task in self.tasks))

    @property
    def failed(self) -> int:
        """The number of the run's rollouts without a reward."""
        return sum(sums.failed for sums in self.tasks.values())

    def renamed(self, agent: str) -> RunRewards:
        """Return these rewards with another name of the agent. There must be only one agent."""
        return RunRewards(
            self.run,
            {TaskId(agent, each.task): sums for each, sums in self.tasks.items()},
            dict.fromkeys([agent], *self.lows.values()) if self.lows else {},
            dict.fromkeys([agent], *self.highs.values()) if self.highs else {},
            {agent} if self.fractional else set(),
        )
