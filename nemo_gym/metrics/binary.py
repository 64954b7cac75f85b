"""Metrics of rewards that are all 0 or 1: pass@k, majority@k and the 95 % interval of the mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.pass_at_k import compute_pass_majority_metrics
from nemo_gym.schemas.row import Row

ANSWER_KEY = "extracted_answer"
"""The field in which verifiers report the answer that they found."""
INTERVAL = ("ci95_low/reward", "ci95_high/reward")
Z_95 = 1.959964


class Interval(NamedTuple):
    """The bounds of a confidence interval."""

    low: float
    high: float


def binary_metrics(tasks: Sequence[Sequence[JsonObject]]) -> JsonObject:
    """Return pass@k and, with extracted answers, majority@k of each task's verify responses, in percent.

    Return nothing if a reward is neither 0 nor 1, or if every task has only one rollout.
    """
    rewards = [[reward for row in rows if (reward := Row(row).reward) is not None] for rows in tasks]
    if not _are_binary(rewards) or max(map(len, rewards)) == 1:
        return {}
    has_answers = any(row.get(ANSWER_KEY) is not None for rows in tasks for row in rows)
    return compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY if has_answers else None).metrics


def interval_of(rewards: Sequence[Sequence[float]]) -> Interval | None:
    """Return the 95 % interval of the mean reward. None if the rewards are not binary or of fewer than two tasks.

    This is Wilson's interval. The rollouts of one task are alike, so it counts them as fewer independent ones.
    """
    groups = [each for each in rewards if each]
    if len(groups) < 2 or not _are_binary(groups):
        return None
    rollouts = sum(map(len, groups))
    mean = sum(map(sum, groups)) / rollouts
    scatter = sum(sum(reward - mean for reward in each) ** 2 for each in groups)
    variance = scatter * len(groups) / (len(groups) - 1) / rollouts**2
    # Equal rewards do not show how alike the rollouts of a task are.
    independent = float(len(groups))
    if 0 < mean < 1:
        independent = mean * (1 - mean) / max(variance, mean * (1 - mean) / rollouts)
        independent = max(independent, len(groups))
    share = Z_95**2 / independent
    centre = (mean + share / 2) / (1 + share)
    half = Z_95 * sqrt(mean * (1 - mean) / independent + share / (4 * independent)) / (1 + share)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def _are_binary(rewards: Sequence[Sequence[float]]) -> bool:
    return any(rewards) and all(reward in (0.0, 1.0) for each in rewards for reward in each)
