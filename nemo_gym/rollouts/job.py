"""Parameters of the commands that collect rollouts, and the files of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from nemo_gym.data.skills import SkillsConfig
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, OutputPath
from nemo_gym.paths import resolved
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.text import did_you_mean

FailedShare = Annotated[float | None, Field(ge=0, le=1)]


def check_resume(*, resumes: bool | str, overwrites: bool) -> None:
    """Raise `ValueError` if an earlier run is to be both resumed and replaced."""
    if resumes and overwrites:
        raise ValueError(
            "--resume (resume_from_cache) continues an earlier run, but --overwrite (overwrite) replaces it. "
            "Use only one"
        )


class AttemptSettings(BaseModel):
    """Settings for the timeout and the retries of a rollout."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    rollout_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds after which a rollout fails. All its attempts in one run share this time."""
    max_attempts: PositiveInt | None = None
    """How often a task may fail, including failures in earlier runs. Default: NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, or 3."""
    retry_pause_s: float = Field(default=1.0, ge=0)
    """Seconds before the first retry if a server is lost or overloaded. Each further wait is four times as long, up to
    60 s."""


class Shard(NamedTuple):
    """One of `of` parts of a run's tasks. The first has the number 1."""

    number: int
    of: int

    def __contains__(self, task: object) -> bool:
        """Return whether a task number belongs to this part."""
        return isinstance(task, int) and task % self.of == self.number - 1


class CollectionSettings(AttemptSettings):
    """The parameters that all commands for collecting rollouts share."""

    output_jsonl_fpath: OutputPath
    """The file for the scored rollouts, one per line. The run's other files are written next to it."""
    agent_name: str | None = None
    """The agent for rows without an agent_ref. Without input_jsonl_fpath, run only its datasets."""
    limit: PositiveInt | None = None
    """Use only this many rows, from the start of the input or of each agent's datasets. Default: all."""
    shard: str | None = None
    """Run only this part of the tasks, such as 3/8 for the third of eight. Start one collection per part, each with
    its own output. Tasks have the same numbers as without parts, so 'ng eval aggregate' can merge the outputs."""
    num_repeats: PositiveInt | dict[str, PositiveInt] | None = None
    """How often to run each row. To set this per agent: {agent: n, _default: n}."""
    num_repeats_add_seed: bool = False
    """Set a different sampling seed for each repeat, in metadata.extra_body."""
    num_samples_in_parallel: PositiveInt | Literal["auto"] = 1024
    """The maximum number of rollouts at once. With auto, it adapts to the measured throughput."""
    responses_create_params: JsonObject = Field(default_factory=dict)
    """Fields, such as temperature, that override the fields of every row's request."""
    prompt_config: str | None = None
    """A prompt file for rows without input."""
    skills: SkillsConfig | None = None
    """A folder of skills. Its hash is recorded in each row."""
    resume_from_cache: bool | Literal["force"] = False
    """Resume the earlier run with this output. With force, resume it even if its rows or its model have changed."""
    overwrite: bool = False
    """Replace the files of an earlier run."""
    detach: bool = False
    """Collect in the background, and print the paths of the output and the log. 'ng eval wait' waits for the end."""
    disable_aggregation: bool = False
    """Do not compute the metrics at the end of the run."""
    metrics: Literal["main", "all"] = "main"
    """At the end of a run of several agents, show one line per agent, or all key metrics of each."""
    interleave_repeats: bool = False
    """Start the first repeat of every row before any second repeat."""
    dispatch_budget_s: float | None = Field(default=None, gt=0)
    """Seconds after which no further rollout starts. Running rollouts finish, and the others stay unresolved."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Seconds after which the run ends. Rollouts that have not ended stay unresolved."""
    max_total_tokens: PositiveInt | None = None
    """The maximum total of input and output tokens, earlier sessions included. Rollouts that would probably exceed it
    do not start."""
    max_cost: float | None = Field(default=None, gt=0)
    """The maximum cost in the currency of `prices`, earlier sessions included. Rollouts that would probably exceed it
    do not start."""
    prices: Path | None = None
    """A YAML file with prices per million tokens: models: {name: {input: …, cached_input: …, output: …}}."""
    until_halfwidth: float | None = Field(default=None, gt=0)
    """Start no rollout of an agent once its mean reward's 95 % confidence interval has at most this half-width."""
    yes: bool = False
    """Do not refuse a plan of more than 10 million rollouts."""
    require_complete: bool = False
    """Exit with code 1 unless every rollout was scored."""
    no_early_stop: bool = False
    """Go on if the first 20 model calls fail in the same way. By default, the run then stops and can be resumed."""
    max_failed_share: FailedShare = None
    """Exit with code 1 if the share failed / (scored + failed) is larger than this, such as 0.05. Default: off."""

    @field_validator("num_samples_in_parallel", mode="before")
    @classmethod
    def _default_for_none(cls, given: object) -> object:
        # Replace None, which once meant unlimited, because programs written for release 0.7 still pass it.
        return cls.model_fields["num_samples_in_parallel"].default if given is None else given

    @field_validator("shard")
    @classmethod
    def _names_a_part(cls, given: str | None) -> str | None:
        part = _shard_of(given)
        if not 1 <= part.number <= part.of:
            raise ValueError(f"must be a part such as 3/8, from 1/8 to 8/8, but is '{given}'")
        return given

    @property
    def part(self) -> Shard:
        """The tasks that the run includes. By default, these are all."""
        return _shard_of(self.shard)

    @field_validator("responses_create_params")
    @classmethod
    def _fits_a_request(cls, given: dict[str, object]) -> dict[str, object]:
        known = ResponseCreateParams.model_fields
        for key in given:
            if key not in known:
                raise ValueError(f"'{key}' is not a field of a request.{did_you_mean(key, known)}")
        return given

    @model_validator(mode="after")
    def _either_resumes_or_overwrites(self) -> Self:
        check_resume(resumes=self.resume_from_cache, overwrites=self.overwrite)
        return self

    @model_validator(mode="after")
    def _cost_has_prices(self) -> Self:
        if self.max_cost is not None and self.prices is None:
            raise ValueError("max_cost needs the prices of the models: add --prices prices.yaml")
        return self


def _shard_of(text: str | None) -> Shard:
    number, _, of = ("1/1" if text is None else text).partition("/")
    return Shard(*(int(each) if each.isascii() and each.isdigit() else 0 for each in (number, of)))


class CollectJob(CollectionSettings):
    """Parameters of `ng_collect_rollouts`, which uses running servers."""

    input_jsonl_fpath: Path
    """The tasks, one JSON object per line."""


class EndToEndJob(CollectionSettings):
    """Parameters of `ng eval run`, which starts the servers, collects rollouts and stops the servers."""

    split: Literal["train", "validation", "benchmark", "example"] | None = None
    """The type of the agents' datasets to collect. Default: benchmark, or the only type that they have."""
    input_jsonl_fpath: Path | None = None
    """Collect these tasks, one JSON object per line, instead of the agents' datasets."""
    reuse_existing_data_preparation: bool = False
    """Reuse the gathered dataset of an earlier run if it exists."""

    @model_validator(mode="after")
    def _either_input_or_split(self) -> Self:
        if self.input_jsonl_fpath is not None and self.split is not None:
            raise ValueError("--input (input_jsonl_fpath) replaces the datasets of --split (split). Use only one")
        return self


FileName = Literal["results", "failures", "materialized_inputs"]
"""A file with rows of rollouts, by the end of its name. `results` is the output itself."""


class RunFiles(BaseModel):
    """The files of one run, named after its output."""

    model_config = ConfigDict(frozen=True)

    results: Path

    @property
    def folder(self) -> Path:
        """The folder with all files of the run that other programs do not read."""
        return self._beside("_run")

    def _beside(self, suffix: str) -> Path:
        return self.results.with_name(f"{self.results.stem}{suffix}")

    @property
    def materialized(self) -> Path:
        """The file with the rows that the run sends to the agents."""
        return self._beside("_materialized_inputs.jsonl")

    @property
    def staged(self) -> Path:
        """The file in which `materialized` is prepared."""
        return self.materialized.with_name(f".{self.materialized.name}.staged")

    @property
    def failures(self) -> Path:
        """The file with the failed attempts, one per line."""
        return self._beside("_failures.jsonl")

    @property
    def ungraded(self) -> Path:
        """The file with the ended rollouts that are graded when the others of their task have ended."""
        return self.folder / "ungraded.jsonl"

    @property
    def metrics(self) -> Path:
        """The file with the aggregate metrics of each agent."""
        return self._beside("_aggregate_metrics.json")

    @property
    def record(self) -> Path:
        """The file with the settings and outcomes of the run."""
        return self._beside("_run.json")

    @property
    def ledger(self) -> Path:
        """The file with the events of the run."""
        return self.folder / "ledger.jsonl"

    @property
    def with_rows(self) -> Mapping[FileName, Path]:
        """The files whose rows the ledger names."""
        return {
            "results": self.results, "failures": self.failures, "materialized_inputs": self.materialized,
        }  # fmt: skip

    @property
    def written(self) -> tuple[Path, ...]:
        """The files that a run writes, apart from logs."""
        return (
            self.results, self.failures, self.ungraded, self.materialized, self.metrics, self.record, self.ledger,
            self.lock,
        )  # fmt: skip

    @property
    def lock(self) -> Path:
        """The lock file of the process that writes the run's files."""
        # Resolve links, so that one output always has one lock.
        output = resolved(self.results)
        return output.with_name(f".{output.name}.lock")

    @property
    def logs(self) -> Path:
        """The folder with the servers' logs of an end-to-end run."""
        return self.folder / "logs"

    @property
    def output_of_command(self) -> Path:
        """The file with the printed output of a collection in the background."""
        return self.folder / "output.log"

    @property
    def prepared(self) -> Path:
        """The folder with the gathered datasets of an end-to-end run."""
        # If the output has no suffix, add one to the folder. Otherwise, both would have the same name.
        folder = self.results.with_suffix("") if self.results.suffix else self._beside("_data")
        return folder / "preprocessed_datasets"

    def earlier_place_of(self, path: Path) -> Path:
        """Return the path that earlier versions used for a folder in `folder`."""
        return self._beside(f"_{path.name}")

    def make_folder(self) -> None:
        """Create `folder` if it does not exist. Raise `DataError` if this is not possible."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.folder}: the run's folder cannot be created ({error.strerror}). Rename what is there, or "
                "choose another output."
            ) from error

    def _unfinished(self) -> Iterator[Path]:
        """Yield the files that a killed session has not finished."""
        if self.staged.exists():
            yield self.staged
        for path in (
            self.results, self.failures, self.materialized, self.staged, self.metrics, self.record,
        ):  # fmt: skip
            yield from path.parent.glob(f".{escape(path.name)}.[0-9]*.partial")
        yield from self.prepared.glob(".*.[0-9]*.partial")

    def remove_unfinished(self) -> None:
        """Delete the files that killed sessions have not finished. The caller must hold the output's lock."""
        for path in self._unfinished():
            path.unlink(missing_ok=True)

    def check_not_read(self, read: Iterable[Path], *others: Path) -> None:
        """Raise `DataError` if the run would write one of the files that it reads, under any of the file's names.

        `others` are further files and folders that the run writes.
        """
        written = [
            *self.written, self.staged, self.output_of_command, *self.logs.glob("*"), *self._unfinished(),
            *others,
        ]  # fmt: skip
        existing = [path for path in written if path.exists()]
        for path in filter(Path.exists, read):
            for each in existing:
                if path.samefile(each) or (each.is_dir() and each.resolve() in path.resolve().parents):
                    raise DataError(
                        f"{path}: this run reads the file, but would write {each}. Choose another output, or copy the "
                        "file to another place."
                    )


def failures_path_for(path: str | Path) -> Path:
    """Return the failures file of a run with this output."""
    return RunFiles(results=Path(path)).failures
