"""The limits at which a run starts no further rollout: time, tokens, money, and a precisely known mean reward."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.ledger import events_in
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.usage import PriceFile, Usage
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

    def __init__(self, half_width: float, files: RunFiles) -> None:
        """Read the rewards of earlier sessions from the run's files, because they count, too."""
        self._wanted = half_width
        self._skipped_at: dict[str, float] = {}
        """The half-width at which an agent's latest row was skipped, by agent. It may grow again afterwards."""
        self._samples: dict[str, Sample] = {}
        for event in events_in(files.ledger, "results"):
            self._of(event.get("agent")).add(TaskKey(event["task"], event["repeat"]), event.get("reward"))

    def within(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows of agents whose mean reward is not yet known precisely enough."""
        for row in rows:
            sample = self._of(row.agent)
            half_width = sample.half_width()
            if half_width is None or half_width > self._wanted:
                sample.start(row.key)
                yield row
            else:
                self._skipped_at[str(row.agent)] = half_width

    def end(self, record: Record) -> None:
        self._of(record.row.agent).end(record.row.key, record.reward if record.outcome is Outcome.SCORED else None)

    def reached(self) -> str | None:
        """Return a message that names the agents with skipped rows, or None if no row was skipped."""
        precise = [f"{agent} ±{width:.3g}" for agent, width in self._skipped_at.items()]
        return f"until_halfwidth: reached by {', '.join(precise)}" if precise else None

    def _of(self, agent: str | None) -> Sample:
        return self._samples.setdefault(str(agent), Sample())


STARTED_BLINDLY = 8
"""The number of rollouts to run at once before the token usage of any rollout is known."""
STARTED_GRADUALLY = 32
"""The number of rollouts to run at once at the start of a run with `until_halfwidth`."""


@dataclass(frozen=True)
class Allowance:
    """A limit on the tokens or the money that rollouts may use."""

    key: str
    most: float
    used: Callable[[Usage], float]
    unit: str = ""


class Budget:
    """The budget of a run. Each rollout is expected to use as much as the ended rollouts used on average."""

    def __init__(
        self,
        settings: CollectionSettings,
        summary: Summary,
        prices: PriceFile | None,
        continues_a_group: Callable[[], bool],
    ) -> None:
        """Initialise the budget. `continues_a_group` returns whether the next rollout is in a group that has begun."""
        self._continues_a_group = continues_a_group
        self._summary = summary
        self._prices = prices
        self._allowances = list(_allowances(settings, prices))
        self._dispatch_budget_s = settings.dispatch_budget_s
        # Start rollouts gradually. Otherwise, all would start before the confidence interval is first computed.
        self._is_gradual = settings.until_halfwidth is not None
        self._has_rows = True
        self._began_at = time.monotonic()
        self._started = 0
        self._ended = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.ended_by: str | None = None
        """Why no further rollout started; None if all could start."""

    @property
    def admits(self) -> bool:
        """Whether `admit` must be awaited before each rollout."""
        return bool(self._allowances) or self._is_gradual

    def in_time(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows until `dispatch_budget_s` has passed. A group that has begun is completed."""
        continues = False
        for row in rows:
            is_over = (
                self._dispatch_budget_s is not None and time.monotonic() > self._began_at + self._dispatch_budget_s
            )
            if is_over and not continues:
                self.ended_by = f"dispatch_budget_s: {self._dispatch_budget_s:g} s have passed"
                return
            yield row
            continues = self._continues_a_group()

    async def admit(self) -> bool:
        """Wait until one more rollout fits into the budget. Return False if no further rollout may start."""
        while self.ended_by is None and self._has_rows:
            objection = self._objection()
            if objection is None:
                return True
            if not self._in_progress:
                self.ended_by = objection
                break
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        self._wake_all()
        return False

    def begin(self) -> None:
        """Count a rollout that starts after `admit`, and let the next waiting call check the budget, too."""
        self._started += 1
        self._wake_one()

    def no_more_rows(self) -> None:
        """Record that all rollouts have started, so that waiting calls of `admit` return False."""
        self._has_rows = False
        self._wake_all()

    def more_rows(self) -> None:
        """Allow rollouts to start again after `no_more_rows`, because some were requeued."""
        self._has_rows = True

    def end(self) -> None:
        """Count a rollout that has ended, and let a waiting call of `admit` check the budget again."""
        self._ended += 1
        self._wake_one()

    def _objection(self) -> str | None:
        usage = self._summary.usage
        if self._continues_a_group():
            return None
        if self._is_gradual and self._in_progress >= max(STARTED_GRADUALLY, self._ended):
            return "until_halfwidth: more rollouts are in progress than have ended"
        for each in self._allowances:
            if not usage.rollouts:
                if usage.unknown:
                    return f"{each.key}: the endpoint does not report token usage, which this limit needs"
                if self._in_progress >= STARTED_BLINDLY:
                    return f"{each.key}: no rollout has ended yet"
                continue
            if each.key == "max_cost" and self._prices and (unpriced := usage.unpriced(self._prices)):
                return f"max_cost: the price file does not list {', '.join(unpriced)}"
            mean = each.used(usage) / usage.rollouts
            if mean * (usage.rollouts + usage.unknown + self._in_progress + 1) > each.most:
                return f"{each.key}: another rollout would probably exceed {each.most:,.10g}{each.unit}"
        return None

    @property
    def _in_progress(self) -> int:
        # Count the ended rollouts here. A requeued rollout does not count as finished in the summary, but has ended.
        return self._started - self._ended

    def _wake_all(self) -> None:
        while self._waiting:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


def _allowances(settings: CollectionSettings, prices: PriceFile | None) -> Iterator[Allowance]:
    if settings.max_total_tokens is not None:
        yield Allowance("max_total_tokens", settings.max_total_tokens, lambda usage: usage.tokens.total, " tokens")
    if settings.max_cost is not None and prices is not None:
        yield Allowance("max_cost", settings.max_cost, lambda usage: usage.cost(prices), f" {prices.currency}")
