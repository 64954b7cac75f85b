"""Metrics of rewards that are all 0 or 1, without `compute_metrics`."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.metrics import AggregateMetricsMixin
from nemo_gym.metrics.binary import binary_metrics, interval_of
from nemo_gym.schemas.rollout import AggregateMetricsRequest
from tests.each_case import each_case


def responses(*tasks: list[float], **fields: Any) -> list[dict[str, Any]]:
    return [
        {"_ng_task_index": task, "_ng_rollout_index": number, "reward": reward, **fields}
        for task, rewards in enumerate(tasks)
        for number, reward in enumerate(rewards)
    ]


async def agent_metrics_of(*tasks: list[float], **fields: Any) -> dict[str, Any]:
    body = AggregateMetricsRequest(verify_responses=responses(*tasks, **fields))
    return (await AggregateMetricsMixin().aggregate_metrics(body)).agent_metrics


async def test_binary_rewards_have_pass_at_k():
    metrics = await agent_metrics_of([1.0, 0.0], [0.0, 0.0])
    assert (metrics["mean/reward"], metrics["pass@1/accuracy"], metrics["pass@2/accuracy"]) == (0.25, 25.0, 50.0)
    assert not any(key.startswith("majority@") for key in metrics)


async def test_extracted_answers_have_a_majority():
    metrics = await agent_metrics_of([1.0, 1.0], [0.0, 0.0], extracted_answer="A")
    assert metrics["majority@2/accuracy"] == 50.0


async def test_other_rewards_have_only_the_baseline():
    metrics = await agent_metrics_of([1.0, 0.5], [0.0, 0.0])
    assert {key.partition("/")[0] for key in metrics} == {"mean", "max", "min", "median", "std"}
    assert binary_metrics([[{"accuracy": 1}]]) == {}


async def test_single_rollouts_have_only_the_baseline():
    assert not any("@" in key for key in await agent_metrics_of([1.0], [0.0]))


def test_other_rewards_and_single_tasks_have_no_interval():
    assert interval_of([[1.0, 0.5], [0.0]]) is None
    assert interval_of([[1.0, 0.0], []]) is None
    assert interval_of([]) is None


@each_case(
    ("rewards", "low", "high"),
    [
        # Wilson's interval of 5 in 10, of 0 in 10, and of 10 in 10.
        ([[1.0]] * 5 + [[0.0]] * 5, 0.2366, 0.7634),
        ([[0.0]] * 10, 0.0, 0.2775),
        ([[1.0]] * 10, 0.7225, 1.0),
        # Identical repeats of a task add nothing.
        ([[1.0] * 8] * 5 + [[0.0] * 8] * 5, 0.2366, 0.7634),
    ],
)
def test_interval_counts_independent_rollouts(rewards, low, high):
    found = interval_of(rewards)
    assert found is not None
    assert found == pytest.approx((low, high), abs=0.02)


def test_repeats_of_varied_tasks_narrow_the_interval():
    single, repeated = interval_of([[1.0], [0.0]] * 10), interval_of([[1.0, 0.0], [0.0, 1.0]] * 10)
    assert repeated.high - repeated.low < single.high - single.low
