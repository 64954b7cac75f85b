"""Reward profiles: the distribution of rewards over each task's rollouts, from the input and rollout files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from nemo_gym import jsonl
from nemo_gym.errors import DataError
from nemo_gym.metrics.aggregate import Attempt, Baseline, TaskMetrics, attempt_of, group_entry
from nemo_gym.schemas.row import Row, TaskKey
from nemo_gym.text import first_few

KEYS_SHOWN = 20


@dataclass(frozen=True)
class Completion:
    """The numbers of expected and completed rollouts (`rows`), and of complete and incomplete tasks (`inputs`)."""

    expected_rows: int
    completed_rows: int
    complete_inputs: int
    partial_inputs: int
    missing_inputs: int


@dataclass(frozen=True)
class RewardProfile:
    """The metrics per task and per agent, in the format that `write_profile` writes to files."""

    group_level_metrics: list[TaskMetrics]
    agent_metrics: list[Mapping[str, object]]
    completion: Completion
    rewards: Mapping[str | None, Sequence[float]]
    """The rewards of each agent. The key is None for rollouts that do not name their agent."""


class RewardProfileConfig(BaseModel):
    """Parameters of `ng eval profile`."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    materialized_inputs_jsonl_fpath: Path
    """The rows that the collection sent to the agents: `<output>_materialized_inputs.jsonl`."""
    rollouts_jsonl_fpath: Path
    """The rollouts file that the collection wrote."""
    allow_partial_rollouts: bool = False
    """Whether to profile the existing rollouts if others are missing."""


class ProfileFiles(NamedTuple):
    """The paths of the files that `write_profile` writes."""

    reward_profiling: Path
    agent_metrics: Path


def profile(materialized_inputs: Path, rollouts: Path, *, allow_partial_rollouts: bool = False) -> RewardProfile:
    """Return the reward profile of a rollouts file. Only one rollout is in memory at a time.

    Raise `DataError` with the rollouts' keys if a rollout has no input row or occurs twice. Also raise it if a
    rollout is missing, unless `allow_partial_rollouts` is set.
    """
    profiler = RewardProfiler()
    for line in jsonl.read_lines(materialized_inputs):
        with _at(materialized_inputs, line.number):
            profiler.expect(Row(line.row))
    for line in jsonl.read_lines(rollouts):
        with _at(rollouts, line.number):
            profiler.add(Row(line.row))
    with _at(rollouts):
        return profiler.profile(allow_partial_rollouts=allow_partial_rollouts)


def with_pass_rates(reward_profile: RewardProfile, threshold: float) -> RewardProfile:
    """Add the `pass_rate` of each task: the share of its rollouts with a reward of at least the threshold."""
    groups = []
    for group in reward_profile.group_level_metrics:
        rewards = [info["reward"] for info in group["rollout_infos"] if "reward" in info]
        passed = sum(reward >= threshold for reward in rewards)
        rate = {"pass_rate": passed / len(rewards)} if rewards else {}
        groups.append({**group, "pass_threshold": threshold, **rate})
    return replace(reward_profile, group_level_metrics=groups)


def write_profile(
    reward_profile: RewardProfile, rollouts: Path, *, reward_profiling: Path | None = None
) -> ProfileFiles:
    """Write a profile's files next to the rollouts file, and replace existing ones.

    `reward_profiling` overrides the path of the file with the metrics per task.
    """
    files = ProfileFiles(
        reward_profiling=reward_profiling or rollouts.with_name(f"{rollouts.stem}_reward_profiling.jsonl"),
        agent_metrics=rollouts.with_name(f"{rollouts.stem}_agent_metrics.json"),
    )
    jsonl.write_rows(files.reward_profiling, reward_profile.group_level_metrics)
    files.agent_metrics.write_bytes(
        orjson.dumps(reward_profile.agent_metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    return files


class RewardProfiler:
    """The computation of a reward profile. To save memory, it keeps one row per task, but only rollouts' numbers."""

    def __init__(self) -> None:
        self._samples: dict[int, jsonl.JsonObject] = {}
        self._agents: dict[TaskKey, str | None] = {}
        self._attempts: dict[TaskKey, Attempt] = {}
        self._unasked: list[TaskKey] = []
        self._repeated: list[TaskKey] = []
        self._baselines: dict[str | None, Baseline] = {}

    def expect(self, row: Row) -> None:
        """Add one materialized input row. Raise `DataError` if a row of the same rollout was added before."""
        key = _key(row)
        if key in self._agents:
            raise DataError(
                f"a second row for rollout {key}. Each row needs a unique pair of _ng_task_index and "
                "_ng_rollout_index."
            )
        self._agents[key] = row.agent
        self._samples.setdefault(key.task, row.without_private())

    def add(self, rollout: Row) -> None:
        """Add one rollout. Call this only after all inputs have been added. Failed rollouts are skipped."""
        if rollout.failure_class is not None:
            return
        key = _key(rollout)
        if "reward" not in rollout.fields:
            raise DataError("not a rollout: the reward is missing. Did you swap the inputs and the rollouts?")
        if key not in self._agents:
            self._unasked.append(key)
            return
        if key in self._attempts:
            self._repeated.append(key)
            return
        attempt = self._attempts[key] = attempt_of(rollout, key.repeat)
        agent = self._agents[key] or rollout.agent
        self._baselines.setdefault(agent, Baseline()).add(attempt.numbers)

    def profile(self, *, allow_partial_rollouts: bool = False) -> RewardProfile:
        """Return the metrics of all rollouts. Raise `DataError` if inputs and rollouts do not match."""
        self._check(allow_partial_rollouts)
        groups = self._groups()
        rewards = {agent: baseline.values_of("reward") for agent, baseline in self._baselines.items()}
        return RewardProfile(groups, self._agent_metrics(), _completion(groups), rewards)

    def _check(self, allow_partial_rollouts: bool) -> None:
        missing = [] if allow_partial_rollouts else [key for key in self._agents if key not in self._attempts]
        faults = [
            f"{len(keys)} {what}: {first_few(sorted(keys), KEYS_SHOWN)}. {remedy}"
            for keys, what, remedy in (
                (self._unasked, "without an input row", "Pass the materialized inputs of the same collection."),
                (self._repeated, "duplicated", "Keep one line for each."),
                (missing, "missing", "Resume the collection, or add --allow-partial-rollouts."),
            )
            if keys
        ]
        if faults:
            raise DataError("rollouts (task:rollout) do not match the inputs; " + " ".join(faults))

    def _groups(self) -> list[TaskMetrics]:
        expected: dict[int, list[TaskKey]] = {}
        for key in sorted(self._agents):
            expected.setdefault(key.task, []).append(key)
        groups = []
        for task, keys in expected.items():
            attempts = [self._attempts[key] for key in keys if key in self._attempts]
            groups.append(group_entry(task, attempts, self._samples[task], expected=len(keys)))
        return groups

    def _agent_metrics(self) -> list[Mapping[str, object]]:
        return [
            {**({} if agent is None else {"agent_ref": {"name": agent}}), **baseline.metrics()}
            for agent, baseline in self._baselines.items()
        ]


def _completion(groups: list[TaskMetrics]) -> Completion:
    complete = sum(group["missing_num_rollouts"] == 0 for group in groups)
    missing = sum(group["num_rollouts"] == 0 for group in groups)
    return Completion(
        expected_rows=sum(group["expected_num_rollouts"] for group in groups),
        completed_rows=sum(group["num_rollouts"] for group in groups),
        complete_inputs=complete,
        partial_inputs=len(groups) - complete - missing,
        missing_inputs=missing,
    )


def _key(row: Row) -> TaskKey:
    try:
        return row.key
    except KeyError as error:
        raise DataError(f"{error} is missing. Pass a file that a collection wrote.") from error


@contextmanager
def _at(path: Path, line: int | None = None) -> Iterator[None]:
    """Prefix the message of a `DataError` with the file and line."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}" if line is None else f"{path}:{line}: {error}") from error
