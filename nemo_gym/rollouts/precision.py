"""End a run early, once the mean reward of each agent is known precisely enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.resume import keyed_rows
from nemo_gym.schemas.row import Row, TaskKey

FEWEST_TASKS = 30
"""The minimum number of tasks for a confidence interval. With fewer tasks, it may be narrow by chance."""
GROWTH = 1.05
"""The factor by which a sample must grow before its interval is computed again."""


class Sample:
    """The rewards of one agent's rollouts, in the order in which they started.

    A rollout counts only once all rollouts that started before it have ended. Otherwise, quick rollouts would be
    overrepresented, and their rewards tend to differ from those of slow ones.
    """

    def __init__(self) -> None:
        self._started: list[TaskKey] = []
        self._ended: dict[TaskKey, float | None] = {}
        self._counted = 0
        self._next_look = 0.0
        self._half_width: float | None = None
        self.rewards: dict[int, list[float]] = {}
        """The counted rewards, by task. A reward counts only once all rollouts that started earlier have ended."""

    def start(self, key: TaskKey) -> None:
        self._started.append(key)

    def end(self, key: TaskKey, reward: float | None) -> None:
        """Add the reward of an ended rollout, or None if it has no score."""
        self._ended[key] = reward
        while self._counted < len(self._started) and self._started[self._counted] in self._ended:
            first = self._started[self._counted]
            self._counted += 1
            self.add(first, self._ended.pop(first))

    def add(self, key: TaskKey, reward: float | None) -> None:
        if reward is not None:
            self.rewards.setdefault(key.task, []).append(reward)

    def half_width(self) -> float | None:
        """Return the half-width of the mean's 95 % confidence interval. Recompute it only after enough new rewards.

        Return None if there are too few tasks, or if the interval has zero width.
        """
        size = sum(map(len, self.rewards.values())) if len(self.rewards) >= FEWEST_TASKS else 0
        if size and size >= self._next_look:
            self._next_look = size * GROWTH
            found = mean_interval(self.rewards)
            # Use the longer side, because the interval is asymmetric near 0 and 1. Ignore an interval of zero width,
            # because equal rewards other than 0 and 1 do not show the spread of further rewards.
            self._half_width = max(found.high - found.mean, found.mean - found.low) or None
        return self._half_width


class Precision:
    """The reward samples of a run's agents, and the half-width at which an agent's mean is precise enough."""

    def __init__(self, half_width: float, results: Path) -> None:
        """Read the rollouts of earlier sessions from `results`, because these rollouts count, too."""
        self._wanted = half_width
        self._skipped_at: dict[str, float] = {}
        """The half-width at which an agent's latest row was skipped, by agent. It may grow again afterwards."""
        self._samples: dict[str, Sample] = {}
        for key, row in keyed_rows(results):
            self._of(row).add(key, row.reward)

    def within(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows of agents whose mean reward is not yet known precisely enough."""
        for row in rows:
            sample = self._of(row)
            half_width = sample.half_width()
            if half_width is None or half_width > self._wanted:
                sample.start(row.key)
                yield row
            else:
                self._skipped_at[str(row.agent)] = half_width

    def end(self, record: Record) -> None:
        self._of(record.row).end(record.row.key, record.reward if record.outcome is Outcome.SCORED else None)

    def reached(self) -> str | None:
        """Return a message that names the agents with skipped rows, or None if no row was skipped."""
        precise = [f"{agent} ±{width:.3g}" for agent, width in self._skipped_at.items()]
        return f"until_halfwidth: reached by {', '.join(precise)}" if precise else None

    def _of(self, row: Row) -> Sample:
        return self._samples.setdefault(str(row.agent), Sample())
