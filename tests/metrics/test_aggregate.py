"""The baseline of every field, per task and overall, and the metrics added by a server."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.metrics import AggregateMetricsMixin, Baseline, compute_aggregate_metrics
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest
from tests.each_case import each_case


def graded(task, repeat, reward, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": repeat, "reward": reward, **fields}


numbers = st.floats(min_value=-1e6, max_value=1e6, allow_subnormal=False)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_baseline_matches_exact_statistics(values):
    baseline = Baseline()
    for value in values:
        baseline.add({"x": value})
    assert baseline.metrics() == {
        "mean/x": pytest.approx(statistics.mean(values), abs=1e-9),
        "max/x": max(values),
        "min/x": min(values),
        "median/x": statistics.median(values),
        "std/x": pytest.approx(statistics.stdev(values) if len(values) > 1 else 0.0, abs=1e-9),
    }


@given(numbers, st.integers(min_value=2, max_value=50))
def test_equal_values_do_not_vary(value, count):
    metrics = compute_aggregate_metrics([graded(0, repeat, value) for repeat in range(count)]).agent_metrics
    assert (metrics["mean/reward"], metrics["std/reward"]) == (value, 0.0)


def test_tasks_and_agent_by_hand():
    found = compute_aggregate_metrics(
        [
            graded(1, 0, 1.0, question="b", response={"usage": {"output_tokens": 9}}),
            graded(0, 1, 0.0, question="a", solved=False),
            graded(0, 0, 1.0, question="a", solved=True),
        ]
    )
    assert found.agent_metrics == {
        "mean/reward": 2 / 3,
        "max/reward": 1.0,
        "min/reward": 0.0,
        "median/reward": 1.0,
        "std/reward": pytest.approx(statistics.stdev([1.0, 1.0, 0.0])),
        "mean/solved": 0.5,
        "max/solved": 1.0,
        "min/solved": 0.0,
        "median/solved": 0.5,
        "std/solved": pytest.approx(statistics.stdev([1.0, 0.0])),
        "mean/output_tokens": 9.0,
        "max/output_tokens": 9.0,
        "min/output_tokens": 9.0,
        "median/output_tokens": 9.0,
        "std/output_tokens": 0.0,
    }
    first, second = found.group_level_metrics
    assert {key: value for key, value in first.items() if "/" not in key} == {
        "_ng_task_index": 0,
        "sample": {"question": "a", "solved": True},
        "num_rollouts": 2,
        "expected_num_rollouts": 2,
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": [
            {"rollout_id": "0:0", "_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "solved": 1},
            {"rollout_id": "0:1", "_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0, "solved": 0},
        ],
    }
    assert first["mean/reward"] == 0.5
    assert "mean/output_tokens" not in first
    assert (second["mean/reward"], second["std/reward"]) == (1.0, 0.0)
    assert second["rollout_infos"] == [
        {
            "rollout_id": "1:0",
            "_ng_task_index": 1,
            "_ng_rollout_index": 0,
            "reward": 1.0,
            "output_tokens": 9,
            "usage": {"output_tokens": 9},
        }
    ]
    assert found.key_metrics == {"mean/reward": 2 / 3, "mean/solved": 0.5, "mean/output_tokens": 9.0}


def test_sample_is_the_row_without_rollout_fields():
    row = {"responses_create_params": {"input": "hi"}, "id": 7, "agent_ref": {"name": "a"}}
    added = {"response": {"output": []}, "ng_trajectory": {}, "_ng_attempt_index": 1, "mask_sample": True}
    (group,) = compute_aggregate_metrics([graded(3, 0, 1.0, **row, **added)]).group_level_metrics
    assert group["sample"] == row


def test_unset_marks_are_neither_metrics_nor_part_of_the_sample():
    marks = {"mask_sample": False, "failure_kind": None, "failure_reason": None}
    metrics = compute_aggregate_metrics([{"_ng_task_index": 0, "reward": 1.0, "question": "q", **marks}])
    assert metrics.agent_metrics.keys() == {f"{name}/reward" for name in ("mean", "max", "min", "median", "std")}
    assert metrics.group_level_metrics[0]["sample"] == {"question": "q"}


def test_indices_are_not_metrics():
    metrics = compute_aggregate_metrics([graded(5, 2, 1.0, _ng_attempt_index=1)]).agent_metrics
    assert {key.split("/")[1] for key in metrics} == {"reward"}


@each_case("value", [None, float("nan"), float("inf"), 10**400, "3", [1], {"a": 1}])
def test_values_that_are_not_finite_are_omitted(value):
    found = compute_aggregate_metrics([graded(0, 0, 1.0, x=value), graded(0, 1, 1.0, x=2)])
    assert found.agent_metrics["mean/x"] == 2.0
    assert "x" not in found.group_level_metrics[0]["rollout_infos"][0]


def test_overflowing_sums_omit_mean_and_deviation():
    rewards = [1.0, 1e308, 1e308]
    metrics = compute_aggregate_metrics([graded(0, *run) for run in enumerate(rewards)]).agent_metrics
    assert metrics == {"max/reward": 1e308, "min/reward": 1.0, "median/reward": 1e308}


def test_failed_rollouts_are_skipped():
    failed = graded(0, 1, 0.0, _ng_failure_class="judge_failed")
    found = compute_aggregate_metrics([graded(0, 0, 1.0), failed])
    assert found.agent_metrics["mean/reward"] == 1.0
    assert found.group_level_metrics[0]["num_rollouts"] == 1
    assert compute_aggregate_metrics([failed]) == AggregateMetrics()


def test_responses_without_task_index_are_separate_tasks():
    found = compute_aggregate_metrics([{"reward": 1.0}, graded(4, 0, 0.0), {"reward": 0.5}])
    assert [(group["_ng_task_index"], group["mean/reward"]) for group in found.group_level_metrics] == [
        (4, 0.0),
        (5, 1.0),
        (6, 0.5),
    ]


def test_field_cannot_override_the_rollout_id():
    (group,) = compute_aggregate_metrics([graded(0, 0, 1.0, rollout_id=9)]).group_level_metrics
    assert group["rollout_infos"][0]["rollout_id"] == "0:0"


class Server(AggregateMetricsMixin):
    """A server with metrics for the agent and for each task."""

    def compute_metrics(self, tasks):
        return {
            "rewards": [[row["reward"] for row in rollouts] for rollouts in tasks],
            "undefined": float("nan"),
            "per_task_metrics": [{"best": max(row["reward"] for row in rollouts)} for rollouts in tasks],
        }

    def get_key_metrics(self, agent_metrics):
        return {"rewards": agent_metrics["rewards"], "nothing": None}


async def test_server_adds_its_own_metrics():
    responses = [graded(2, 1, 0.25), graded(1, 0, 1.0), graded(2, 0, 0.75)]
    found = await Server().aggregate_metrics(AggregateMetricsRequest(verify_responses=responses))
    assert found.agent_metrics["rewards"] == [[1.0], [0.75, 0.25]]
    assert found.agent_metrics["mean/reward"] == pytest.approx(2 / 3)
    assert found.agent_metrics.keys().isdisjoint({"undefined", "per_task_metrics"})
    assert [group["best"] for group in found.group_level_metrics] == [1.0, 0.75]
    assert found.key_metrics == {"rewards": [[1.0], [0.75, 0.25]]}


async def test_server_without_metrics_gets_the_baseline():
    body = AggregateMetricsRequest(verify_responses=[graded(0, 0, 0.75), graded(1, 0, 0.0)])
    assert await AggregateMetricsMixin().aggregate_metrics(body) == compute_aggregate_metrics(body.verify_responses)


def test_per_task_metrics_are_matched_by_index():
    entries = [{"_ng_task_index": 8, "depth": 2}, {"_ng_task_index": 3, "depth": None}, {"_ng_task_index": 99}]
    found = compute_aggregate_metrics(
        [graded(3, 0, 1.0), graded(8, 0, 1.0)], lambda tasks: {"per_task_metrics": entries}
    )
    assert [group.get("depth") for group in found.group_level_metrics] == [None, 2]


def test_computed_metric_may_replace_a_baseline():
    found = compute_aggregate_metrics([graded(0, 0, 1.0)], lambda tasks: {"mean/reward": 42.0})
    assert found.key_metrics == {"mean/reward": 42.0}
