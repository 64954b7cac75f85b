"""Compare runs task by task: the metrics of each agent, overall and per subset, with confidence intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.evaluation.arrays import Floats, np
from nemo_gym.evaluation.differences import PairedDifferences
from nemo_gym.evaluation.pairing import Pair, Subset, pairs_of
from nemo_gym.evaluation.permutation import permutation_p_value
from nemo_gym.evaluation.scores import REWARD, RunScores, read_runs
from nemo_gym.evaluation.tasks import (
    PASS_AT,
    k_of,
    mean_values,
    most_repeats,
    noise_floor,
    task_values,
    usual_repeats,
)

TASKS_NAMED = 10
ROUNDING = 1e-9
ACCURACY = "accuracy"
"""A second name of the metric `reward` in the conditions of `--gate`, unless the rollouts have such a field."""


class ChangedTask(NamedTuple):
    """A task with its value in both runs."""

    task: Hashable
    a: float
    b: float


@dataclass(frozen=True)
class Estimate:
    """A comparison of a metric in two runs, over the tasks that both runs have."""

    a: float
    b: float
    difference: PairedDifferences
    """The differences B minus A, task by task."""
    p_value: float
    """The p-value of the paired permutation test."""
    noise: float | None
    """With 95 % probability, two runs of equal models differ by less than this value. None if it is unknown."""
    most_lost: list[ChangedTask]
    """The tasks with the largest drop, at most `TASKS_NAMED`."""

    @property
    def tasks(self) -> int:
        return len(self.difference.values)

    @property
    def won(self) -> int:
        """The number of tasks with a higher value in B."""
        return int((self.difference.values > 0).sum())

    @property
    def lost(self) -> int:
        """The number of tasks with a lower value in B."""
        return int((self.difference.values < 0).sum())


@dataclass(frozen=True)
class Row:
    """The comparison of one metric of one agent, over all tasks or over one subset."""

    agent: str
    subset: str | None
    metric: str
    scored: Estimate | None
    """The estimate from scored rollouts only. None if no task has scored rollouts in both runs."""
    failed_as_zero: Estimate | None
    """The estimate with 0 for each failed rollout. None if no rollout failed."""

    @property
    def estimate(self) -> Estimate:
        """The estimate `scored` if it is set, otherwise the estimate `failed_as_zero`."""
        estimate = self.scored or self.failed_as_zero
        assert estimate is not None, "a row has one of them"
        return estimate


@dataclass(frozen=True)
class Comparison:
    """The comparison of a run (B) with the first run (A)."""

    a: RunScores
    b: RunScores
    pairs: list[Pair]
    rows: list[Row]


@dataclass(frozen=True)
class Selection:
    """The options of a comparison, such as the metrics and the field that defines subsets."""

    key: str | None = None
    """The row field that identifies a task. Default: the index of the task in its run."""
    by: str | None = None
    """The row field by whose values the tasks are divided into subsets."""
    metrics: Sequence[str] = ()
    """The metrics to compare. Default: the reward, pass@k, and each field that is a score between 0 and 1."""
    pass_at: int | None = None
    """The k of pass@k. Default: the number of rollouts that most tasks of a run have, the smaller of the two."""


def compare(paths: Sequence[Path], selection: Selection | None = None) -> list[Comparison]:
    """Compare each further run with the first run. Raise `DataError` if two runs have no task in common."""
    selection = selection or Selection()
    base, *others = read_runs(paths, key=selection.key, by=selection.by)
    found = [_compared(base, other, selection) for other in others]
    if selection.by is not None and not any(row.subset for each in found for row in each.rows):
        raise DataError(f"{base.path}: no row has the field '{selection.by}'. Pass one of the rows' fields to --by.")
    return found


def _compared(base: RunScores, other: RunScores, selection: Selection) -> Comparison:
    pairs = pairs_of(base, other)
    if selection.pass_at is not None:
        _check_repeats(pairs, selection.pass_at)
    rows = [
        row
        for pair in pairs
        for subset in pair.subsets()
        for metric in selection.metrics or _usual_metrics(pair, selection.pass_at)
        if (row := row_of(pair, subset, metric)) is not None
    ]
    for metric in selection.metrics:
        if not any(row.metric == metric for row in rows):
            raise DataError(f"{other.path}: no task has the metric '{metric}' in both runs. {metrics_of(pairs)}")
    return Comparison(base, other, pairs, rows)


def metrics_of(pairs: Sequence[Pair]) -> str:
    """Return a sentence with the metrics that both runs have."""
    known = dict.fromkeys(name for pair in pairs for name in pair.metrics)
    return f"Metrics: {', '.join(known)}, and {PASS_AT}k if the rewards are 0 or 1."


def _check_repeats(pairs: Sequence[Pair], pass_at: int) -> None:
    most = max(min(most_repeats(each.a), most_repeats(each.b)) for each in pairs)
    if pass_at > most:
        raise DataError(
            f"--pass-at {pass_at}: no task has more than {most} rollouts in both runs. Pass {most} or less."
        )


def _usual_metrics(pair: Pair, pass_at: int | None) -> list[str]:
    k = pass_at or min(usual_repeats(pair.a), usual_repeats(pair.b))
    return [
        REWARD,
        *([f"{PASS_AT}{k}"] if k > 1 else []),
        *(name for name in pair.metrics if name != REWARD and _is_score(pair, name)),
    ]


def _is_score(pair: Pair, name: str) -> bool:
    """Return whether a field is a score: between 0 and 1, not a copy of the reward, and not echoed from the rows.

    A field with the same values in both runs counts as echoed.
    """
    if not (pair.a.rollouts and pair.b.rollouts):
        # Assume that the field is echoed from the rows, because only values from both runs can show that it is not.
        return False
    if any(each.fields[name].low < 0 or each.fields[name].high > 1 for each in (pair.a, pair.b)):
        return False
    values, rewards = _values(pair, name), _values(pair, REWARD)
    is_reward = all(np.array_equal(*both, equal_nan=True) for both in zip(values, rewards, strict=True))
    return not is_reward and not np.array_equal(*values, equal_nan=True)


def _values(pair: Pair, name: str) -> tuple[Floats, Floats]:
    a, b = mean_values(pair.a, name, pair.shared.at_a), mean_values(pair.b, name, pair.shared.at_b)
    return a.values, b.values


def row_of(pair: Pair, subset: Subset, metric: str) -> Row | None:
    """Compare one metric over some tasks. Return None if no task has the metric in both runs."""
    scored = _estimate(pair, subset, metric, failed_as_zero=False)
    has_failed = bool(pair.a.failed[subset.at_a].any() or pair.b.failed[subset.at_b].any())
    as_zero = _estimate(pair, subset, metric, failed_as_zero=True) if has_failed else None
    if scored is None and as_zero is None:
        return None
    return Row(pair.name, subset.name, metric, scored, as_zero)


def _estimate(pair: Pair, subset: Subset, metric: str, *, failed_as_zero: bool) -> Estimate | None:
    in_a = task_values(pair.a, metric, subset.at_a, failed_as_zero=failed_as_zero)
    in_b = task_values(pair.b, metric, subset.at_b, failed_as_zero=failed_as_zero)
    if in_a is None or in_b is None:
        return None
    known = np.flatnonzero(~(np.isnan(in_a.values) | np.isnan(in_b.values)))
    if not len(known):
        return None
    a, b = in_a.values[known], in_b.values[known]
    span = _span(pair, metric, a, b)
    # Ignore tiny differences, because sums of the same values in another order have other rounding errors.
    differences = np.where(np.abs(b - a) > ROUNDING * span, b - a, 0.0)
    return Estimate(
        a=float(a.mean()),
        b=float(b.mean()),
        difference=PairedDifferences(differences, span),
        p_value=permutation_p_value(differences),
        noise=noise_floor(in_a.variance, in_b.variance),
        most_lost=[
            ChangedTask(subset.tasks[known[place]], float(a[place]), float(b[place]))
            for place in np.argsort(differences, kind="stable")[:TASKS_NAMED]
            if differences[place] < 0
        ],
    )


def _span(pair: Pair, metric: str, a: Floats, b: Floats) -> float:
    """Return the largest possible difference between the values of a task in two runs.

    For pass@k and for fields that are always 0 or 1, return 1. Otherwise, return the range of all values, extended to
    include 0.
    """
    if k_of(metric) is not None or all(each.fields[metric].is_binary for each in (pair.a, pair.b)):
        return 1.0
    return float(max(a.max(), b.max(), 0.0) - min(a.min(), b.min(), 0.0))
