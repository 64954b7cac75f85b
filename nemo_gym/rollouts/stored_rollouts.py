"""The stored rollouts that are graded again, each matched with the row that its agent received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from nemo_gym.config.wording import counted
from nemo_gym.errors import DataError, JudgeFailed
from nemo_gym.jsonl import OutputPath, read_lines
from nemo_gym.rollouts.job import CollectionSettings, FailedShare, check_resume, failures_path_for
from nemo_gym.rollouts.resume import keyed_rows
from nemo_gym.schemas.row import Row, TaskKey

KEYS_SHOWN = 20


class ReverificationJob(BaseModel):
    """Parameters of the command that grades stored rollouts again."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    materialized_inputs_jsonl_fpath: Path
    """The rows that were sent to the agents: <output>_materialized_inputs.jsonl of the collection."""
    rollouts_jsonl_fpath: Path
    """The rollouts: the output of the collection."""
    output_jsonl_fpath: OutputPath
    """The file for the newly graded rollouts."""
    force: bool = False
    """Also use servers that may need the rollout's state for grading. The output's name then starts with unsafe_."""
    disable_aggregation: bool = False
    """Skip the metrics at the end."""
    num_samples_in_parallel: PositiveInt | None = None
    """The maximum number of rollouts to grade at once. Default: 1024."""
    limit: PositiveInt | None = None
    """Grade only this many rollouts, from the start of the file. Default: all."""
    overwrite: bool = False
    """Replace an earlier output."""
    resume_from_cache: bool = False
    """Grade only the rollouts that are missing from an earlier output."""
    judge_failed_only: bool = False
    """Keep the scored rollouts and grade only those whose judge failed (from <rollouts>_failures.jsonl)."""
    append: bool = False
    """Add missing rollouts to the output, which may be the rollouts file itself."""
    rollout_timeout_s: float = Field(default=CollectionSettings.model_fields["rollout_timeout_s"].default, gt=0)
    """Seconds after which the grading of a rollout fails."""
    max_failed_share: FailedShare = None
    """Exit with code 1 if the share failed / (scored + failed) is larger than this, such as 0.05. Default: off."""

    @model_validator(mode="after")
    def _either_resumes_or_overwrites(self) -> Self:
        check_resume(resumes=self.resume_from_cache, overwrites=self.overwrite)
        return self


@dataclass(frozen=True)
class Stored:
    """The rollouts to grade: their line numbers, their input rows, and the agents that the rows name."""

    job: ReverificationJob
    lines: Mapping[TaskKey, int]
    inputs: Mapping[TaskKey, bytes]
    agents: frozenset[str | None]

    @classmethod
    def read(cls, job: ReverificationJob) -> Stored:
        """Read and match all files before anything runs. Raise `DataError` if they do not match."""
        lines: dict[TaskKey, int] = {}
        for line in read_lines(source_of(job)):
            row = Row(line.row)
            if job.judge_failed_only and row.failure_class != JudgeFailed.failure_class:
                continue
            if row.response is None:
                raise DataError(
                    f"{source_of(job)}:{line.number}: the response to be graded is missing. Pass the output of a "
                    "collection."
                )
            lines[_key(row, source_of(job), line.number)] = line.number
        if job.judge_failed_only:
            for key, _ in keyed_rows(job.rollouts_jsonl_fpath):
                lines.pop(key, None)
        elif not lines:
            raise DataError(f"{source_of(job)} does not contain rollouts to grade. Pass the output of a collection.")
        lines = dict(list(lines.items())[: job.limit])
        inputs, agents = _inputs_of(job.materialized_inputs_jsonl_fpath, lines)
        return cls(job, lines, inputs, frozenset(agents))


def source_of(job: ReverificationJob) -> Path:
    """Return the file with the responses to grade."""
    return failures_path_for(job.rollouts_jsonl_fpath) if job.judge_failed_only else job.rollouts_jsonl_fpath


def _key(row: Row, path: Path, number: int) -> TaskKey:
    try:
        return row.key
    except KeyError as error:
        raise DataError(f"{path}:{number}: {error} is missing. Pass a file that a collection wrote.") from error


def _inputs_of(path: Path, wanted: Mapping[TaskKey, int]) -> tuple[dict[TaskKey, bytes], set[str | None]]:
    """Return the unparsed input rows of the wanted rollouts, and the agents that these rows name."""
    inputs: dict[TaskKey, bytes] = {}
    agents = set()
    for line in read_lines(path):
        row = Row(line.row)
        key = _key(row, path, line.number)
        if key in wanted:
            inputs[key] = line.raw
            agents.add(row.agent)
    if missing := [str(key) for key in wanted if key not in inputs]:
        shown = ", ".join(missing[:KEYS_SHOWN])
        more = f" and {len(missing) - KEYS_SHOWN} more" if len(missing) > KEYS_SHOWN else ""
        raise DataError(
            f"{path}: the rows of {counted(len(missing), 'rollout')} (task:rollout) are missing: {shown}{more}. Pass "
            "the materialized inputs of the same collection."
        )
    return inputs, agents
