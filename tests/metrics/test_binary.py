"""Metrics of rewards that are all 0 or 1, without `compute_metrics`."""

from __future__ import annotations

from typing import Any

from nemo_gym.metrics import AggregateMetricsMixin
from nemo_gym.metrics.binary import binary_metrics
from nemo_gym.schemas.rollout import AggregateMetricsRequest


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
