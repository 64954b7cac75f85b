"""Metrics of rewards that are all 0 or 1: pass@k and majority@k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.pass_at_k import Tasks, compute_pass_majority_metrics
from nemo_gym.schemas.row import Row


def binary_metrics(tasks: Tasks) -> JsonObject:
    """Return pass@k in percent. If the verify responses have extracted answers, also return majority@k.

    Return an empty dict if a reward is neither 0 nor 1, or if every task has only one rollout.
    """
    rewards = [[reward for row in rows if (reward := Row(row).reward) is not None] for rows in tasks]
    if not _are_binary(rewards) or max(map(len, rewards)) == 1:
        return {}
    has_answers = any(row.get("extracted_answer") is not None for rows in tasks for row in rows)
    return compute_pass_majority_metrics(tasks, answer_key="extracted_answer" if has_answers else None).metrics


def has_no_answer(graded: Mapping[str, object]) -> bool:
    """Return whether a verifier looked for an answer and found none."""
    return "extracted_answer" in graded and graded["extracted_answer"] in (None, "")


def _are_binary(rewards: Sequence[Sequence[float]]) -> bool:
    return any(rewards) and all(reward in (0.0, 1.0) for each in rewards for reward in each)
