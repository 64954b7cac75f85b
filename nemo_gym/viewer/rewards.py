"""The sums of each task's rewards, computed by a query of the run's index."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.entry import REPEAT_BITS
from nemo_gym.viewer.library import RunView

UNNAMED = "rollouts"
"""The agent name for rollouts whose row does not name an agent. `ng eval compare` uses the same name."""
SUMS = (
    f"agent, id >> {REPEAT_BITS}, COUNT(reward), TOTAL(reward), TOTAL(reward * reward), COUNT(*) - COUNT(reward),"
    " MIN(reward), MAX(reward), TOTAL(reward NOT IN (0, 1))"
)


class TaskId(NamedTuple):
    agent: str
    task: int


class TaskSums(NamedTuple):
    """Statistics of one task's rewards: their number, their sum and the sum of their squares."""

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
    run: RunView
    tasks: dict[TaskId, TaskSums] = field(default_factory=dict)
    lows: dict[str, float] = field(default_factory=dict)
    """The lowest reward of each agent."""
    highs: dict[str, float] = field(default_factory=dict)
    fractional: set[str] = field(default_factory=set)
    """The agents with rewards other than 0 and 1."""

    @classmethod
    def read(cls, run: RunView, selected: Filter) -> RunRewards:
        """Sum the rewards of the selected rollouts. Rollouts that have not ended are skipped."""
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
        return list(dict.fromkeys(task.agent for task in self.tasks))

    @property
    def failed(self) -> int:
        return sum(sums.failed for sums in self.tasks.values())

    def renamed(self, agent: str) -> RunRewards:
        """Return a copy in which the agent has another name. The run must have only one agent."""
        return RunRewards(
            self.run,
            {TaskId(agent, each.task): sums for each, sums in self.tasks.items()},
            dict.fromkeys([agent], *self.lows.values()) if self.lows else {},
            dict.fromkeys([agent], *self.highs.values()) if self.highs else {},
            {agent} if self.fractional else set(),
        )
