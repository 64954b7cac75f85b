"""The limits at which a run starts no further rollout: time, tokens and money."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.usage import PriceFile, Usage
from nemo_gym.schemas.row import Row


@dataclass(frozen=True)
class Allowance:
    """A limit on something that rollouts use up."""

    key: str
    most: float
    used: Callable[[Usage], float]
    unit: str = ""


class Budget:
    """The budget of a run. Rollouts in progress count with the mean of those that have ended."""

    def __init__(self, settings: CollectionSettings, summary: Summary, prices: PriceFile | None) -> None:
        self._summary = summary
        self._prices = prices
        self._allowances = list(_allowances(settings, prices))
        self._dispatch_budget_s = settings.dispatch_budget_s
        self._began_at = time.monotonic()
        self._started = 0
        self._finished_before = summary.finished
        self.ended_by: str | None = None
        """Why no further rollout started, None if all could start."""

    def within(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows of rollouts that may start, until the budget is spent."""
        for row in rows:
            if reason := self._objection():
                self.ended_by = reason
                return
            self._started += 1
            yield row

    def _objection(self) -> str | None:
        if self._dispatch_budget_s is not None and time.monotonic() > self._began_at + self._dispatch_budget_s:
            return f"dispatch_budget_s: {self._dispatch_budget_s:g} s have passed"
        usage = self._summary.usage
        for each in self._allowances:
            if usage.unknown:
                return f"{each.key}: the endpoint does not report the tokens of its answers, so none can be counted"
            if each.key == "max_cost" and self._prices and (unpriced := usage.unpriced(self._prices)):
                return f"max_cost: the price file does not list {', '.join(unpriced)}"
            if usage.rollouts and each.used(usage) * (1 + (self._in_progress + 1) / usage.rollouts) > each.most:
                return f"{each.key}: another rollout would probably exceed {each.most:,.10g}{each.unit}"
        return None

    @property
    def _in_progress(self) -> int:
        return self._started - (self._summary.finished - self._finished_before)


def _allowances(settings: CollectionSettings, prices: PriceFile | None) -> Iterator[Allowance]:
    if settings.max_total_tokens is not None:
        yield Allowance("max_total_tokens", settings.max_total_tokens, lambda usage: usage.tokens.total, " tokens")
    if settings.max_cost is not None and prices is not None:
        yield Allowance("max_cost", settings.max_cost, lambda usage: usage.cost(prices), f" {prices.currency}")
