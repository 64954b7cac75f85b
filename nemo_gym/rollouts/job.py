"""What a collection is asked to do: the parameters of the commands that collect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

from nemo_gym.data.skills import SkillsConfig


class AttemptSettings(BaseModel):
    """How long a rollout may take, and how often it is tried."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    rollout_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds after which a rollout fails. All attempts of one run share them."""
    max_attempts: PositiveInt | None = None
    """How often a task may fail, earlier runs included. Default: NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, or 3."""
    retry_pause_s: float = Field(default=1.0, ge=0)
    """Seconds to wait after a lost or overloaded server. Each further wait is four times as long, up to 60 s."""


class CollectionSettings(AttemptSettings):
    """Parameters of every command that collects rollouts."""

    output_jsonl_fpath: Path
    """Where the scored rollouts go, one per line; the other files of the run stand beside it."""
    agent_name: str | None = None
    """The agent for rows that name none."""
    limit: PositiveInt | None = None
    """Only the first so many rows."""
    num_repeats: PositiveInt | dict[str, PositiveInt] | None = None
    """How often each row is run; per agent as {agent: n, _default: n}."""
    num_repeats_add_seed: bool = False
    """Give each repeat its own sampling seed, by metadata.extra_body."""
    num_samples_in_parallel: PositiveInt | Literal["auto"] = 1024
    """How many rollouts may be under way at once; auto finds out how many bring the most."""
    responses_create_params: dict[str, Any] = Field(default_factory=dict)
    """Fields laid over every row's request, such as temperature."""
    prompt_config: str | None = None
    """A prompt file for rows without input."""
    skills: SkillsConfig | None = None
    """A folder of skills; each row is stamped with its hash."""
    resume_from_cache: bool | Literal["force"] = False
    """Go on with an earlier run of the same output; force: even where its rows or its model were others."""
    overwrite: bool = False
    """Replace the files of an earlier run."""
    disable_aggregation: bool = False
    """Leave out the metrics at the end."""
    interleave_repeats: bool = False
    """Begin the first repeat of every row before the second one of any."""
    dispatch_budget_s: float | None = Field(default=None, gt=0)
    """Begin no rollout after so many seconds; those that are under way end, the others stay unresolved."""
    require_complete: bool = False
    """End with exit code 1 unless every rollout was scored."""

    @field_validator("num_samples_in_parallel", mode="before")
    @classmethod
    def _usual_where_none_is_asked_for(cls, given: Any) -> Any:
        # Published programs hand None on, which once meant no bound at all.
        return cls.model_fields["num_samples_in_parallel"].default if given is None else given


class CollectJob(CollectionSettings):
    """Parameters of `ng_collect_rollouts`: against servers that are up."""

    input_jsonl_fpath: Path
    """The tasks, one JSON object per line."""


class EndToEndJob(CollectionSettings):
    """Parameters of `ng_e2e_collect_rollouts`: starts the servers, collects, stops them."""

    split: Literal["train", "validation", "benchmark", "example"]
    """Which datasets of the agents are collected."""
    reuse_existing_data_preparation: bool = False
    """Take the gathered dataset of an earlier run where there is one."""


class RunFiles(BaseModel):
    """The files of one run, named after its output."""

    model_config = ConfigDict(frozen=True)

    results: Path

    def _beside(self, suffix: str) -> Path:
        return self.results.with_name(f"{self.results.stem}{suffix}")

    @property
    def materialized(self) -> Path:
        """Every row as it was sent."""
        return self._beside("_materialized_inputs.jsonl")

    @property
    def failures(self) -> Path:
        """One line per failed attempt."""
        return self._beside("_failures.jsonl")

    @property
    def metrics(self) -> Path:
        """The aggregate metrics of each agent."""
        return self._beside("_aggregate_metrics.json")

    @property
    def record(self) -> Path:
        """What the run was, and what came of it."""
        return self._beside("_run.json")

    @property
    def lock(self) -> Path:
        """Held by the one process that writes these files."""
        # Whatever link leads there, one output has one lock.
        output = self.results.resolve()
        return output.with_name(f".{output.name}.lock")

    @property
    def logs(self) -> Path:
        """The servers' logs of an end-to-end run."""
        return self._beside("_logs")

    @property
    def prepared(self) -> Path:
        """The gathered datasets of an end-to-end run."""
        # An output without a suffix would otherwise have the name of its own folder.
        folder = self.results.with_suffix("") if self.results.suffix else self._beside("_data")
        return folder / "preprocessed_datasets"


def failures_path_for(path: str | Path) -> Path:
    """Where the failures of a run with this output are written."""
    return RunFiles(results=Path(path)).failures
