"""Counts over all rollouts of a run, from one pass over its index."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field

import orjson

from nemo_gym.metrics.intervals import pass_at_k


@dataclass
class Census:
    """The counts of a run's rollouts."""

    agents: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    tiers: Counter[str] = field(default_factory=Counter)
    servers: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    rewards: int = 0
    reward_sum: float = 0.0
    reward_range: tuple[float, float] | None = None
    steps_range: tuple[int, int] | None = None

    @property
    def mean_reward(self) -> float | None:
        """The mean over all rollouts with a reward."""
        return self.reward_sum / self.rewards if self.rewards else None


def census_of(db: sqlite3.Connection) -> Census:
    """Count the rollouts of an index."""
    census = Census()
    toolsets = {number: orjson.loads(names) for number, names in db.execute("SELECT id, names FROM toolsets")}
    groups = db.execute(
        "SELECT agent, outcome, failure, tier, server, toolset, COUNT(*), COUNT(reward), TOTAL(reward), MIN(reward),"
        " MAX(reward), MIN(steps), MAX(steps) FROM rollouts GROUP BY 1, 2, 3, 4, 5, 6"
    )
    rewards: list[float] = []
    steps: list[int] = []
    for *names, toolset, count, with_reward, total, low, high, fewest, most in groups:
        counters = (census.agents, census.outcomes, census.failures, census.tiers, census.servers)
        for counter, name in zip(counters, names, strict=True):
            if name is not None:
                counter[name] += count
        for tool in toolsets.get(toolset, ()):
            census.tools[tool] += count
        census.rewards += with_reward
        census.reward_sum += total
        rewards += [value for value in (low, high) if value is not None]
        steps += [value for value in (fewest, most) if value is not None]
    census.reward_range = (min(rewards), max(rewards)) if rewards else None
    census.steps_range = (min(steps), max(steps)) if steps else None
    return census


def pass_rates(db: sqlite3.Connection) -> dict[str, float] | None:
    """Return pass@k, between 0 and 1, for powers of two and the largest k; None unless all rewards are 0 or 1.

    A value at k is the mean over the tasks that have at least k rewards, as in the metrics of a run.
    """
    if db.execute("SELECT 1 FROM rollouts WHERE reward NOT IN (0, 1) LIMIT 1").fetchone():
        return None
    groups = db.execute(
        "SELECT rewards, correct, COUNT(*) FROM (SELECT COUNT(*) AS rewards, SUM(reward = 1) AS correct FROM rollouts"
        " WHERE reward IS NOT NULL GROUP BY id >> 20) GROUP BY rewards, correct"
    ).fetchall()
    if not groups:
        return None
    largest = max(rewards for rewards, _, _ in groups)
    rates = {}
    for k in sorted({largest, *(1 << bit for bit in range(largest.bit_length()))}):
        enough = [each for each in groups if each[0] >= k]
        passed = sum(tasks * pass_at_k([1.0] * correct + [0.0] * (n - correct), k) for n, correct, tasks in enough)
        rates[str(k)] = passed / sum(tasks for _, _, tasks in enough)
    return rates
