"""Mean and spread of the numeric fields of verify responses, per task and per agent."""

from __future__ import annotations

import asyncio
import logging
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.binary import binary_metrics
from nemo_gym.metrics.pass_at_k import VerifyResponses
from nemo_gym.schemas.rollout import FAILURE_MARKS, AggregateMetrics, AggregateMetricsRequest
from nemo_gym.schemas.row import ROLLOUT_INDEX_KEY, TASK_INDEX_KEY, Row

logger = logging.getLogger(__name__)

ComputeMetrics = Callable[[list[list[JsonObject]]], JsonObject]
GetKeyMetrics = Callable[[JsonObject], JsonObject]
TaskMetrics = JsonObject
"""The metrics of one task: its index, its sample, its numbers of rollouts, its statistics and `rollout_infos`."""

PER_TASK_METRICS = "per_task_metrics"
ADDED_BY_THE_ROLLOUT = frozenset(
    {"response", "reward", "mask_sample", "ng_model_call_capture", "ng_agent_observations", "ng_trajectory"}
)


class AggregateMetricsMixin:
    """The metrics aggregation of a server. Override `compute_metrics` and `get_key_metrics` to add metrics."""

    def compute_metrics(self, tasks: list[list[JsonObject]]) -> JsonObject:
        """Return further agent metrics, computed from the verify responses grouped by task.

        A list `per_task_metrics` in the result is merged into the task groups. Each entry belongs to the task of its
        `_ng_task_index`, or else to the task at the same position in `tasks`. Default: `binary_metrics`.
        """
        return binary_metrics(tasks)

    def get_key_metrics(self, agent_metrics: JsonObject) -> JsonObject:
        """Return the headline metrics. Default: every mean."""
        return mean_metrics(agent_metrics)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the metrics of one agent's verify responses. This method handles `POST /aggregate_metrics`."""
        # Use a thread, because a large run takes seconds of CPU time, which would block the event loop.
        return await asyncio.to_thread(
            compute_aggregate_metrics, body.verify_responses, self.compute_metrics, self.get_key_metrics
        )


def compute_aggregate_metrics(
    verify_responses: VerifyResponses,
    compute_metrics_fn: ComputeMetrics | None = None,
    get_key_metrics_fn: GetKeyMetrics | None = None,
) -> AggregateMetrics:
    """Return the baseline of every numeric field, per task and overall, plus the results of the given functions.

    Failed rollouts (`_ng_failure_class`) are skipped. Metrics that are None or not finite are omitted. The expected
    number of a task's rollouts is set to the actual number. The caller may correct it with `completeness`.
    """
    tasks = responses_by_task(verify_responses)
    if not tasks:
        return AggregateMetrics()
    baseline = Baseline()
    groups: dict[int, TaskMetrics] = {}
    for task_index, rows in tasks.items():
        attempts = [attempt_of(Row(row), place) for place, row in enumerate(rows)]
        for attempt in attempts:
            baseline.add(attempt.numbers)
        groups[task_index] = group_entry(task_index, attempts, sample_of(Row(rows[0])), expected=len(attempts))

    computed = compute_metrics_fn(list(tasks.values())) if compute_metrics_fn is not None else {}
    agent_metrics = _finite({**baseline.metrics(), **computed})
    _merge_per_task(groups, agent_metrics.pop(PER_TASK_METRICS, []))
    key_metrics = (get_key_metrics_fn or mean_metrics)(agent_metrics)
    return AggregateMetrics(
        group_level_metrics=list(groups.values()), agent_metrics=agent_metrics, key_metrics=_finite(key_metrics)
    )


def mean_metrics(agent_metrics: Mapping[str, object]) -> JsonObject:
    """Return only the metrics whose names start with `mean/`."""
    return {key: value for key, value in agent_metrics.items() if key.startswith("mean/")}


class Baseline:
    """The mean, max, min, median and sample standard deviation of every field. Rollouts are added one at a time.

    Each value takes eight bytes, so the numbers of a million rollouts fit in memory.
    """

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {}

    def add(self, numbers: Mapping[str, float]) -> None:
        """Add the numbers of one rollout, as returned by `numbers_of`."""
        for field, value in numbers.items():
            column = self._columns.get(field)
            if column is None:
                column = self._columns[field] = array("d")
            column.append(value)

    def values_of(self, field: str) -> Sequence[float]:
        """Return the values of a field in the order in which they were added."""
        return self._columns.get(field, array("d"))

    def metrics(self) -> dict[str, float]:
        """Return `mean/<field>` and the other statistics, each over the rollouts that have the field."""
        return {
            f"{statistic}/{field}": value
            for field, column in self._columns.items()
            for statistic, value in _summary(column)._asdict().items()
            if math.isfinite(value)
        }


class _Summary(NamedTuple):
    mean: float
    max: float
    min: float
    median: float
    std: float


def _summary(column: Sequence[float]) -> _Summary:
    values, count = sorted(column), len(column)
    low, high = values[0], values[-1]
    mean = _total(values) / count
    if math.isfinite(mean):
        # Clip the mean, because rounding may move it out of [low, high]. Equal values must have a deviation of 0.
        mean = min(max(mean, low), high)
    squares = _total([(value - mean) * (value - mean) for value in values])
    return _Summary(
        mean=mean,
        max=high,
        min=low,
        median=values[count // 2] if count % 2 else (values[count // 2 - 1] + values[count // 2]) / 2,
        std=math.sqrt(squares / (count - 1)) if count > 1 else 0.0,
    )


def _total(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


class Attempt(NamedTuple):
    """The part of a verify response that the metrics use."""

    rollout_index: int
    numbers: dict[str, float]
    usage: Mapping[str, object] | None


def attempt_of(row: Row, default_index: int) -> Attempt:
    """Reduce a verify response to an `Attempt`. `default_index` replaces a missing rollout index."""
    index = row.repeat_index
    return Attempt(default_index if index is None else index, numbers_of(row), row.usage)


def numbers_of(row: Row) -> dict[str, float]:
    """Return the numeric and boolean (as 0 or 1) fields of a verify response and of its `response.usage`.

    Fields of the collector (`_ng_…`), numbers that are not finite and marks that are not set are omitted.
    """
    numbers = {
        field: number
        for field, value in row.without_private().items()
        if (number := _number(value)) is not None and not _is_unset_mark(field, value)
    }
    for field, value in (row.usage or {}).items():
        number = _number(value)
        if number is not None:
            numbers[field] = number
    return numbers


def sample_of(row: Row) -> dict[str, object]:
    """Return the input row and the verifier's fields. Omit fields that the rollout or the collector added."""
    return {
        field: value
        for field, value in row.without_private().items()
        if field not in ADDED_BY_THE_ROLLOUT and not _is_unset_mark(field, value)
    }


def completeness(rollouts: int, expected: int) -> dict[str, float]:
    """Return the numbers of a task's expected and missing rollouts, and the completed percentage (0 to 100)."""
    return {
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - rollouts,
        "reward_profile_completion_pct": 100.0 * rollouts / expected,
    }


def group_entry(task_index: int, attempts: Sequence[Attempt], sample: JsonObject, *, expected: int) -> TaskMetrics:
    """Return the metrics of one task, with an entry for each of its rollouts."""
    baseline = Baseline()
    for attempt in attempts:
        baseline.add(attempt.numbers)
    return {
        TASK_INDEX_KEY: task_index,
        **({"sample": sample} if sample else {}),
        "num_rollouts": len(attempts),
        **completeness(len(attempts), expected),
        **baseline.metrics(),
        "rollout_infos": [_rollout_info(task_index, attempt) for attempt in attempts],
    }


def responses_by_task(verify_responses: VerifyResponses) -> dict[int, list[JsonObject]]:
    """Group the successful responses by task index, each group sorted by rollout index.

    A response without a task index becomes a separate task, numbered after all others.
    """
    tasks: dict[int, list[JsonObject]] = {}
    single: list[JsonObject] = []
    for fields in verify_responses:
        row = Row(fields)
        if row.failure_class is not None:
            continue
        if row.task_index is None:
            single.append(fields)
        else:
            tasks.setdefault(row.task_index, []).append(fields)
    for rows in tasks.values():
        # Put the rows without an index last, in their original order.
        rows.sort(key=lambda fields: math.inf if (index := Row(fields).repeat_index) is None else index)
    ordered = dict(sorted(tasks.items()))
    ordered.update(enumerate(([row] for row in single), start=max(ordered, default=-1) + 1))
    return ordered


def _is_unset_mark(field: str, value: object) -> bool:
    # A verifier writes all marks, whether or not something has failed.
    return not value and field in FAILURE_MARKS


def _number(value: object) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        # Skip an integer that is too large for a float.
        return None
    if not is_finite:
        return None
    return int(value) if isinstance(value, bool) else value


def _rollout_info(task_index: int, attempt: Attempt) -> Mapping[str, object]:
    info: dict[str, object] = {
        "rollout_id": f"{task_index}:{attempt.rollout_index}",
        TASK_INDEX_KEY: task_index,
        ROLLOUT_INDEX_KEY: attempt.rollout_index,
    }
    if attempt.usage is not None:
        info["usage"] = attempt.usage
    # Put `info` last, because a verifier's field of the same name must not overwrite the rollout's identity.
    return {**attempt.numbers, **info}


def _merge_per_task(groups: dict[int, TaskMetrics], entries: Sequence[TaskMetrics]) -> None:
    order = list(groups)
    for place, entry in enumerate(entries):
        task_index = entry.get(TASK_INDEX_KEY, order[place] if place < len(order) else None)
        if task_index not in groups:
            logger.warning(
                "compute_metrics returned metrics for task %s, which has no rollouts; they are ignored", task_index
            )
            continue
        groups[task_index].update(_finite(entry))


def _finite(metrics: Mapping[str, object]) -> JsonObject:
    return {
        key: value
        for key, value in metrics.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
