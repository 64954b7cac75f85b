"""pass@k, majority@k and their deviations, from the scores of a task's repeated attempts.

For each metric, a task yields a curve: its values at k = 1, 2, … up to the task's number of attempts. The metric at k
is the mean, in percent, over the curves that reach k. The cost is therefore linear in the number of rollouts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Sized
from itertools import accumulate
from math import isfinite, sqrt
from statistics import fmean
from typing import NamedTuple

import orjson

from nemo_gym.jsonl import JsonObject

Scores = dict[str, float]
VerifyResponses = Sequence[JsonObject]
Tasks = Sequence[VerifyResponses]
"""Verify responses, grouped by task."""
ScoreFn = Callable[[JsonObject], Mapping[str, float | None]]
Curve = Sequence[float]

NO_ANSWER = "no_answer"
AGGREGATE = "per_sample_aggregate"
OF_SUBSET = "/pass@1/"
"""The middle part of metric names such as `<subset>/pass@1/<score>`. Every subset has one such metric per score."""
STAT_SUFFIXES = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")


class PassMajority(NamedTuple):
    """The result of `compute_pass_majority_metrics`.

    `all_score_dicts` holds the scores per task and rollout. `max_k` is the largest number of rollouts per task.
    """

    metrics: JsonObject
    all_score_dicts: list[list[Scores]]
    score_names: list[str]
    max_k: int


def compute_pass_majority_metrics(
    tasks: Tasks, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> PassMajority:
    """Return pass@k, pass@1[avg-of-k] and, with an `answer_key`, majority@k of every score, in percent.

    `score_fn` returns the scores of one response; by default
    the only score is `accuracy`, the reward. A response whose score is missing, None or not finite is
    skipped for that score. A score is binary if all its values are 0 or 1. With an `answer_key`, there is also the
    score `no_answer`: 1 if the answer is missing or empty.
    """
    score_of = score_fn or (lambda row: {"accuracy": row.get("reward")})
    scores = [[_scores(row, score_of, answer_key) for row in rollouts] for rollouts in tasks]
    names = sorted({name for rollouts in scores for attempt in rollouts for name in attempt})
    max_k = max(map(len, tasks), default=0)
    metrics: dict[str, object] = {}
    for name in names:
        curves = _values(scores, name)
        is_binary = all(value in (0.0, 1.0) for curve in curves for value in curve)
        pass_curve = _chance_of_a_hit if is_binary else _best_so_far
        metrics |= _by_k(f"pass@{{k}}/{name}", map(pass_curve, curves))
        metrics |= _by_k(f"pass@1[avg-of-{{k}}]/{name}", map(_mean_so_far, curves))
        if answer_key is not None:
            votes = (_votes(rows, attempts, name, answer_key) for rows, attempts in zip(tasks, scores, strict=True))
            metrics |= _by_k(f"majority@{{k}}/{name}", map(_majority_so_far, votes))
    run_averages = {name: _run_averages(scores, name, max_k) for name in names}
    for name, averages in run_averages.items():
        metrics |= _spread_across_runs(name, averages)
    if names:
        metrics[AGGREGATE] = run_averages
    return PassMajority(metrics, scores, names, max_k)


def add_avg_sample_std_dev(
    metrics: JsonObject, all_score_dicts: list[list[Scores]], score_names: Iterable[str], max_k: int
) -> None:
    """Add the sample standard deviation of a task's first k scores, for k = 2 … `max_k`, to `metrics`.

    The deviation is averaged over the tasks.
    """
    for name in score_names:
        curves = [_std_so_far(curve[:max_k]) for curve in _values(all_score_dicts, name)]
        deviations = _by_k(f"pass@1[avg-of-{{k}}]/{name}/avg_sample_std_dev", curves)
        # Remove k = 1, because the sample deviation of a single score is undefined.
        deviations.pop(f"pass@1[avg-of-1]/{name}/avg_sample_std_dev", None)
        metrics.update(deviations)


def compute_subset_metrics(
    tasks: Tasks, subset_key: str, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> JsonObject:
    """Return the metrics of `compute_pass_majority_metrics` per value of a field, with keys `<value>/<metric>`.

    A task belongs to the first value that is not empty among its responses. Tasks without a value are skipped.
    The metric `per_sample_aggregate` is omitted.
    """
    subsets: dict[str, list[VerifyResponses]] = {}
    for rollouts in tasks:
        value = next((row[subset_key] for row in rollouts if row.get(subset_key)), None)
        if value is not None:
            subsets.setdefault(str(value), []).append(rollouts)
    return {
        f"{subset}/{key}": value
        for subset, members in subsets.items()
        for key, value in compute_pass_majority_metrics(members, score_fn, answer_key).metrics.items()
        if key != AGGREGATE
    }


def subsets_of(agent_metrics: Iterable[str]) -> list[str]:
    """Return the names of the subsets that have metrics in `agent_metrics`."""
    found = (key.partition(OF_SUBSET) for key in agent_metrics)
    return list(dict.fromkeys(subset for subset, middle, _ in found if middle))


def highest_k_metrics(
    agent_metrics: Mapping[str, object],
    pattern: str,
    score_names: Collection[str] | None = None,
    exclude_names: Collection[str] | None = None,
) -> JsonObject:
    """Return the entries `<pattern>/<score>` of the largest k, such as `pass@8/accuracy` for `pass@{k}`.

    `score_names` and `exclude_names` select the scores. Deviations and standard errors are always skipped.
    """
    if "{k}" not in pattern:
        raise ValueError(f"the pattern {pattern!r} does not contain '{{k}}'; write it like 'pass@{{k}}'")
    before, _, after = pattern.partition("{k}")
    wanted = re.compile(f"{re.escape(before)}(?P<k>[0-9]+){re.escape(after)}/(?P<score>.+)")
    found: dict[int, JsonObject] = {}
    for key, value in agent_metrics.items():
        match = wanted.fullmatch(key)
        if match is None or match["score"].endswith(tuple(f"/{suffix}" for suffix in STAT_SUFFIXES)):
            continue
        if score_names is not None and match["score"] not in score_names:
            continue
        if exclude_names is not None and match["score"] in exclude_names:
            continue
        found.setdefault(int(match["k"]), {})[key] = value
    return found[max(found)] if found else {}


def _scores(row: JsonObject, score_of: ScoreFn, answer_key: str | None) -> Scores:
    values = score_of(row)
    scores = {name: float(value) for name, value in values.items() if value is not None and isfinite(value)}
    if answer_key is not None:
        scores.setdefault(NO_ANSWER, float(_is_empty(row.get(answer_key))))
    return scores


def _is_empty(answer: object) -> bool:
    return answer is None or (isinstance(answer, Sized) and len(answer) == 0)


def _values(scores: list[list[Scores]], name: str) -> list[list[float]]:
    return [[attempt[name] for attempt in rollouts if name in attempt] for rollouts in scores]


def _by_k(key: str, curves: Iterable[Curve]) -> dict[str, float]:
    """Return the mean at each k, in percent, over the curves that reach that k. `key` is a template with `{k}`."""
    at_k: list[list[float]] = []
    for curve in curves:
        at_k.extend([] for _ in range(len(curve) - len(at_k)))
        for values, value in zip(at_k, curve, strict=False):
            values.append(value)
    return {key.replace("{k}", str(k)): 100.0 * fmean(values) for k, values in enumerate(at_k, start=1)}


def _chance_of_a_hit(scores: Curve) -> list[float]:
    """Return 1 - C(wrong, k) / C(n, k): the chance that k of n attempts, drawn at random, include a correct one."""
    attempts, wrong = len(scores), list(scores).count(0.0)
    missed, chances = 1.0, []
    for drawn in range(attempts):
        # If more attempts are drawn than are wrong, one factor is 0, and so is the product.
        missed *= (wrong - drawn) / (attempts - drawn)
        chances.append(1.0 - missed)
    return chances


def _best_so_far(scores: Curve) -> list[float]:
    return list(accumulate(scores, max))


def _mean_so_far(scores: Curve) -> list[float]:
    return [total / k for k, total in enumerate(accumulate(scores), start=1)]


def _std_so_far(values: Curve) -> list[float]:
    """Return the sample standard deviation of the first k values for each k, with 0 at k = 1."""
    deviations, mean, squares = [], 0.0, 0.0
    for k, value in enumerate(values, start=1):
        # Use Welford's algorithm, because it is numerically stable and needs only one pass for all k.
        step = value - mean
        mean += step / k
        squares += step * (value - mean)
        deviations.append(sqrt(squares / (k - 1)) if k > 1 else 0.0)
    return deviations


class _Vote(NamedTuple):
    answer: Hashable | None
    score: float


def _votes(rows: VerifyResponses, attempts: Sequence[Scores], name: str, answer_key: str) -> list[_Vote]:
    return [
        _Vote(_hashable(row.get(answer_key)), attempt[name])
        for row, attempt in zip(rows, attempts, strict=True)
        if name in attempt
    ]


def _hashable(answer: object) -> Hashable | None:
    if _is_empty(answer):
        return None
    return orjson.dumps(answer, option=orjson.OPT_SORT_KEYS) if isinstance(answer, list | dict) else answer


def _majority_so_far(votes: Sequence[_Vote]) -> list[float]:
    """Return, for each k, the score of the most frequent (answer, score) pair among the first k votes.

    The scores of tied pairs are averaged. If none of the k votes has an answer, the score is 0.
    """
    counts: Counter[_Vote] = Counter()
    most, leaders, total, majority = 0, 0, 0.0, []
    for vote in votes:
        if vote.answer is not None:
            counts[vote] += 1
            if counts[vote] > most:
                most, leaders, total = counts[vote], 1, vote.score
            elif counts[vote] == most:
                leaders, total = leaders + 1, total + vote.score
        majority.append(total / leaders if leaders else 0.0)
    return majority


def _run_averages(scores: list[list[Scores]], name: str, max_k: int) -> list[float]:
    """Return each run's average score in percent. Run i consists of the i-th rollout of every task that has one."""
    by_run: list[list[float]] = [[] for _ in range(max_k)]
    for rollouts in scores:
        for values, attempt in zip(by_run, rollouts, strict=False):
            if name in attempt:
                values.append(attempt[name])
    return [100.0 * fmean(values) for values in by_run if values]


def _spread_across_runs(name: str, averages: list[float]) -> dict[str, float]:
    spread = {}
    for k, deviation in enumerate(_std_so_far(averages), start=1):
        if k > 1:
            spread[f"pass@1[avg-of-{k}]/{name}/std_dev_across_runs"] = deviation
            spread[f"pass@1[avg-of-{k}]/{name}/std_err_across_runs"] = deviation / sqrt(k)
    return spread
