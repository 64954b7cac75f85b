"""Counts over all rollouts of a run, from one pass over its index."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from nemo_gym.metrics.intervals import pass_at_k


@dataclass
class Census:
    """Counts of a run's rollouts, and the ranges of rewards and steps."""

    counts: Mapping[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """The counts by agents, outcomes, failures, tiers, servers and tools."""
    rewards: int = 0
    reward_sum: float = 0.0
    reward_range: tuple[float, float] | None = None
    steps_range: tuple[int, int] | None = None

    @property
    def mean_reward(self) -> float | None:
        """The mean over all rollouts with a reward."""
        return self.reward_sum / self.rewards if self.rewards else None


def census_of(db: sqlite3.Connection) -> Census:
    census = Census()
    toolsets = {number: orjson.loads(counts) for number, counts in db.execute("SELECT id, counts FROM toolsets")}
    # Count in Python, because GROUP BY would sort all rollouts, which takes twice as long.
    groups = Counter(db.execute("SELECT agent, outcome, toolset FROM rollouts"))
    for (agent, outcome, toolset), count in groups.items():
        census.counts["outcomes"][outcome] += count
        if agent is not None:
            census.counts["agents"][agent] += count
        for tool in toolsets.get(toolset, ()):
            census.counts["tools"][tool] += count
    failed = Counter(db.execute("SELECT failure, tier, server FROM rollouts WHERE outcome = 'failed'"))
    for names, count in failed.items():
        for kind, name in zip(("failures", "tiers", "servers"), names, strict=True):
            if name is not None:
                census.counts[kind][name] += count
    census.rewards, census.reward_sum, low, high, fewest, most = db.execute(
        "SELECT COUNT(reward), TOTAL(reward), MIN(reward), MAX(reward), MIN(steps), MAX(steps) FROM rollouts"
    ).fetchone()
    census.reward_range = (low, high) if low is not None else None
    census.steps_range = (fewest, most) if fewest is not None else None
    return census


def pass_rates(db: sqlite3.Connection) -> dict[str, float] | None:
    """Return pass@k, between 0 and 1, for each power of two and for the largest k. The keys are strings.

    Return None unless all rewards are 0 or 1. The largest k is the smallest number of rewards per task, so that all
    values are means over the same tasks. Tasks without a reward do not count.
    """
    if db.execute("SELECT 1 FROM rollouts WHERE reward NOT IN (0, 1) LIMIT 1").fetchone():
        return None
    groups = db.execute(
        "SELECT rewards, correct, COUNT(*) FROM (SELECT COUNT(*) AS rewards, SUM(reward = 1) AS correct FROM rollouts"
        " WHERE reward IS NOT NULL GROUP BY id >> 20) GROUP BY rewards, correct"
    ).fetchall()
    if not groups:
        return None
    largest = min(rewards for rewards, _, _ in groups)
    total = sum(tasks for _, _, tasks in groups)
    rates = {}
    for k in sorted({largest, *(1 << bit for bit in range(largest.bit_length()))}):
        passed = sum(tasks * pass_at_k([1.0] * correct + [0.0] * (n - correct), k) for n, correct, tasks in groups)
        rates[str(k)] = passed / total
    return rates
