"""Measure how much a judge disagrees with itself when it grades the same rollouts several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.evaluation.verdicts import stratum_of, verdicts_of
from nemo_gym.jsonl import read_rows
from nemo_gym.labelling.agreement import Agreement, agreement, fleiss_kappa
from nemo_gym.labelling.labels import Labels, pairs_of
from nemo_gym.metrics.intervals import Interval, wilson_interval
from nemo_gym.schemas.row import Row, TaskKey
from nemo_gym.text import counted

TIED = "tied"


class Stability(NamedTuple):
    """The stability of a judge's verdicts on the whole answer, or on one criterion."""

    fleiss_kappa: float | None
    """Fleiss' kappa of the verdicts. None if all verdicts of all rollouts have the same value."""
    unstable: Interval
    """The share of rollouts whose verdicts are not all the same."""


class JudgeVariance(NamedTuple):
    """The variance of a judge's rewards and verdicts over several gradings of the same rollouts."""

    repeats: int
    rollouts: int
    """The number of rollouts that were graded every time. All statistics cover only these."""
    incomplete: int
    """The number of rollouts that are excluded, because the judge failed at least once."""
    mean_rewards: tuple[float, ...]
    """The mean reward of each grading."""
    reward_std: float
    """The root mean square, over the rollouts, of the standard deviation of a rollout's reward."""
    by_name: Mapping[str, Stability]

    @property
    def run_std(self) -> float:
        """The standard deviation of a run's mean reward that is due to the judge alone."""
        return self.reward_std / sqrt(self.rollouts)


class Regraded(NamedTuple):
    """The gradings of one rollout. Each list has one entry per grading."""

    strata: list[str]
    verdicts: list[dict[str, str]]
    rewards: list[float]


def gradings_of(files: Sequence[Path]) -> dict[TaskKey, Regraded]:
    """Read files with gradings of the same rollouts. Match the rollouts by task and repeat."""
    found: dict[TaskKey, Regraded] = {}
    for path in files:
        for fields in read_rows(path):
            regraded = found.setdefault(Row(fields).key, Regraded([], [], []))
            regraded.strata.append(stratum_of(fields))
            regraded.verdicts.append(verdicts_of(fields))
            regraded.rewards.append(float(fields["reward"]))
    return found


def judge_variance(gradings: Mapping[TaskKey, Regraded], repeats: int) -> JudgeVariance:
    """Return the variance over the rollouts that were graded `repeats` times. Raise `DataError` if there are none."""
    whole = [each for each in gradings.values() if len(each.rewards) == repeats]
    if not whole:
        raise DataError(
            f"none of {counted(len(gradings), 'rollout')} was graded {repeats} times, because the judge failed. The "
            "causes are in the *_failures.jsonl files next to the output."
        )
    variances = [stdev(each.rewards) ** 2 for each in whole]
    return JudgeVariance(
        repeats,
        len(whole),
        len(gradings) - len(whole),
        tuple(fmean(each.rewards[repeat] for each in whole) for repeat in range(repeats)),
        sqrt(fmean(variances)),
        {name: _stability(verdicts) for name, verdicts in _verdicts_by_name(whole).items()},
    )


def _verdicts_by_name(gradings: Sequence[Regraded]) -> dict[str, list[list[str]]]:
    """Return the verdicts of each rollout by name, if every grading of the rollout has this verdict.

    The names differ between rollouts of several environments, or if the tasks have their own rubrics.
    """
    found: dict[str, list[list[str]]] = {}
    for each in gradings:
        for name in each.verdicts[0]:
            verdicts = [one[name] for one in each.verdicts if name in one]
            if len(verdicts) == len(each.verdicts):
                found.setdefault(name, []).append(verdicts)
    return found


def _stability(verdicts: Sequence[Sequence[str]]) -> Stability:
    unstable = sum(len(set(each)) > 1 for each in verdicts)
    return Stability(fleiss_kappa(verdicts), wilson_interval(unstable, len(verdicts)))


def majority_agreement(gradings: Mapping[TaskKey, Regraded], labels: Labels, rollouts: Path) -> dict[str, Agreement]:
    """Return the agreement of the rollouts' most frequent verdicts with their labels, keyed by verdict name.

    A rollout without a single most frequent verdict counts as a disagreement. `rollouts` is the file from which
    the labelled sample was drawn.
    """
    pairs, sizes, choices = pairs_of(rollouts, labels)
    majority = {
        key: {name: _most_frequent([each[name] for each in one.verdicts if name in each]) for name in one.verdicts[0]}
        for key, one in gradings.items()
    }
    return {
        name: agreement([pair._replace(verdict=majority[key][name]) for key, pair in graded], sizes, choices[name])
        for name, own in pairs.items()
        # Skip rollouts for which the judge failed each time, because they do not have a verdict.
        if (graded := [(key, pair) for key, pair in own if name in majority.get(key, ())])
    }


def _most_frequent(verdicts: Sequence[str]) -> str:
    ranked = Counter(verdicts).most_common(2)
    return TIED if len(ranked) == 2 and ranked[0][1] == ranked[1][1] else ranked[0][0]
