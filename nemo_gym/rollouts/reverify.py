"""Grade stored rollouts again: send each row with its response to the resources server, without a policy model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.models import RunConfig
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.settings import AGENT_TIER, POLICY_MODEL, RESOURCES_TIER
from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import ConfigError, DataError, EnvironmentFailed, JudgeFailed, RolloutError, ServerCallError
from nemo_gym.jsonl import (
    Appender,
    OutputPath,
    loads_exact,
    parse_row,
    read_lines,
    read_lines_at,
    read_rows,
    write_rows,
)
from nemo_gym.rollouts.collector import OnRecord, Recorder, allowed_connections, first_of
from nemo_gym.rollouts.groups import GroupedTasks, group_sizes, offsets_of, stored_at
from nemo_gym.rollouts.job import (
    AttemptSettings,
    CollectionSettings,
    FailedShare,
    RunFiles,
    check_resume,
    failures_path_for,
)
from nemo_gym.rollouts.ledger import events_in
from nemo_gym.rollouts.ledger_check import agree
from nemo_gym.rollouts.ledger_writer import LedgerWriter
from nemo_gym.rollouts.opening import check_companions
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.resume import KeySet, keyed_rows, max_attempts
from nemo_gym.rollouts.run_record import Fingerprint, RecordKeeper, RunRecord, read_record, session_of
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import AttemptLimits, Runner
from nemo_gym.schemas.rollout import ReverifyMode
from nemo_gym.schemas.row import MEDIA_DIR_KEY, Row, TaskKey, rows_at
from nemo_gym.text import counted, first_few

UNSAFE = "unsafe_"
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
    """The rollouts to grade, each matched with the row that its agent received."""

    job: ReverificationJob
    offsets: Mapping[TaskKey, int]
    """Where the rollouts begin in the file with the responses."""
    inputs: Mapping[TaskKey, bytes]
    """The unparsed rows that were sent to the agents."""
    agents: frozenset[str | None]
    """The agents that the rows name."""

    @classmethod
    def read(cls, job: ReverificationJob) -> Stored:
        """Read and match all files before anything runs. Raise `DataError` if they do not match."""
        source, materialized = source_of(job), job.materialized_inputs_jsonl_fpath
        found: dict[TaskKey, int] = {}
        for offset, (number, raw) in read_lines_at(source):
            row = Row(parse_row(raw, source, number))
            if job.judge_failed_only and row.failure_class != JudgeFailed.failure_class:
                continue
            if row.response is None:
                raise DataError(
                    f"{source}:{number}: the response to be graded is missing. Pass the output of a collection."
                )
            found[_key(row, source, number)] = offset
        if job.judge_failed_only:
            for key, _ in keyed_rows(job.rollouts_jsonl_fpath):
                found.pop(key, None)
        elif not found:
            raise DataError(f"{source} does not contain rollouts to grade. Pass the output of a collection.")
        offsets = dict(list(found.items())[: job.limit])
        inputs: dict[TaskKey, bytes] = {}
        agents: set[str | None] = set()
        for line in read_lines(materialized):
            row = Row(line.row)
            key = _key(row, materialized, line.number)
            if key in offsets:
                inputs[key] = line.raw
                agents.add(row.agent)
        if missing := [str(key) for key in offsets if key not in inputs]:
            raise DataError(
                f"{materialized}: the rows of {counted(len(missing), 'rollout')} (task:rollout) are missing: "
                f"{first_few(missing, KEYS_SHOWN)}. Pass the materialized inputs of the same collection."
            )
        return cls(job, offsets, inputs, frozenset(agents))


def source_of(job: ReverificationJob) -> Path:
    """Return the file with the responses to grade."""
    return failures_path_for(job.rollouts_jsonl_fpath) if job.judge_failed_only else job.rollouts_jsonl_fpath


def _key(row: Row, path: Path, number: int) -> TaskKey:
    try:
        return row.key
    except KeyError as error:
        raise DataError(f"{path}:{number}: {error} is missing. Pass a file that a collection wrote.") from error


@dataclass(frozen=True)
class Graders:
    """The resources servers that grade the rollouts, by agent."""

    of_agent: Mapping[str, str]
    only: str | None = None
    """The resources server that grades all rollouts, if it is the only one and no agent names a resources server."""
    in_groups: frozenset[str] = frozenset()
    """The resources servers that verify all rollouts of a task together."""
    policies: frozenset[str] = frozenset()
    """The model servers of the agents. Grading does not call them."""

    @classmethod
    def among(cls, run: RunConfig) -> Graders:
        """Find the resources server that each agent names."""
        of_agent, resources, in_groups, policies = {}, [], [], {POLICY_MODEL}
        for block in run.servers.values():
            if block.type == AGENT_TIER:
                policies.add(block.referred("model_server"))
                if server := block.referred("resources_server"):
                    of_agent[block.name] = server
            elif block.type == RESOURCES_TIER:
                resources.append(block.name)
                if block.settings.get("group_verification") is not None:
                    in_groups.append(block.name)
        of_agent |= {alias: of_agent[agent] for alias, agent in run.aliases.items() if agent in of_agent}
        only = resources[0] if len(resources) == 1 and not of_agent else None
        return cls(of_agent, only, frozenset(in_groups), frozenset(policies))

    def find(self, agent: str | None) -> str | None:
        """Return the resources server for an agent's rollouts, or None if the agent is unknown."""
        return self.only or self.of_agent.get(str(agent))


class Regrader(Runner):
    """A runner that sends each row and its stored response to a resources server, which grades the response."""

    PATH: ClassVar[str] = "/verify"
    FAILURE: ClassVar[type[RolloutError]] = EnvironmentFailed

    def __init__(self, client: ServerClient, graders: Graders, *, rollout_timeout_s: float) -> None:
        super().__init__(client, rollout_timeout_s=rollout_timeout_s)
        # Do not capture model calls, because they were already recorded with the original rollout.
        self._capture = None
        self._graders = graders

    def server_of(self, row: Row) -> str:
        return str(self._graders.find(row.agent))

    async def run(self, row: Row) -> Record:
        if self.server_of(row) in self._graders.in_groups:
            return Record(Outcome.UNRESOLVED, row, is_ungraded=True)
        return await super().run(row)


class Begun(NamedTuple):
    """An output that is ready to be written, with its existing rollouts."""

    files: RunFiles
    done: KeySet
    ledger: LedgerWriter
    summary: Summary
    record: RecordKeeper
    hide: Callable[[bytes], bytes] | None
    """A function that masks secrets in each line of a file."""


@dataclass(frozen=True)
class Reverification:
    """A plan for grading rollouts again: the rollouts, and the servers that grade them."""

    job: ReverificationJob
    graders: Graders
    stored: Stored
    servers: frozenset[str]
    """The resources servers that grade the rollouts."""
    grouped: Mapping[str, str]
    """The servers that verify all rollouts of a task together, keyed by agent."""

    @classmethod
    def plan(cls, stored: Stored, graders: Graders) -> Reverification:
        """Return a plan with the grader of each rollout.

        Raise `ConfigError` if an agent does not have a grader, or `DataError` if different servers would grade the
        rollouts of a group.
        """
        found = {agent: graders.find(agent) for agent in stored.agents}
        if unknown := sorted(str(agent) for agent, server in found.items() if server is None):
            known = ", ".join(sorted(graders.of_agent))
            listed = f"Agents with a resources_server: {known}. " if known else ""
            raise ConfigError(
                f"the configuration does not define a resources server for the rollouts of {', '.join(unknown)}. "
                f"{listed}Pass the config of the original collection."
            )
        grouped = {str(agent): server for agent, server in found.items() if server in graders.in_groups}
        if grouped:
            group_sizes((Row(loads_exact(raw)) for raw in stored.inputs.values()), grouped)
        return cls(stored.job, graders, stored, frozenset(filter(None, found.values())), grouped)

    def rows(self, done: KeySet, groups: GroupedTasks) -> Iterator[Row]:
        """Yield the rows that are not in `done`, each with its stored response, in the order of the tasks."""
        source, rollouts = source_of(self.job), self.job.rollouts_jsonl_fpath
        pending: dict[int, dict[int, int]] = {}
        graded: dict[int, dict[int, int]] = {}
        for key, offset in self.stored.offsets.items():
            (graded if key in done else pending).setdefault(key.task, {})[key.repeat] = offset
        in_groups = pending if self.grouped else {}
        stored = offsets_of(rollouts, in_groups)
        planned = offsets_of(self.job.materialized_inputs_jsonl_fpath, in_groups)
        for task, offsets in pending.items():
            rows = {repeat: Row(loads_exact(self.stored.inputs[TaskKey(task, repeat)])) for repeat in offsets}
            first = next(iter(rows.values()))
            if groups.key_of(first) is not None:
                others = stored_at(source, graded.get(task, {})) | stored_at(rollouts, stored.get(task, {}))
                rest = [repeat for repeat in planned[task] if repeat not in offsets]
                groups.expect(
                    first,
                    planned[task],
                    pending=offsets,
                    scored={repeat: others[repeat] for repeat in rest if repeat in others},
                    absent={repeat: "no stored rollout" for repeat in rest if repeat not in others},
                )
            for repeat, rollout in zip(offsets, rows_at(source, offsets.values()), strict=True):
                yield _as_answered(rows[repeat], rollout)

    async def output(self, client: ServerClient) -> RunFiles:
        """Return the output files. Unless `force` is set, raise `DataError` if a server may need session state."""
        modes = {server: await _mode(client, server) for server in sorted(self.servers)}
        unsafe = [f"{server} ({mode})" for server, mode in modes.items() if mode is not ReverifyMode.STATELESS]
        path = self.job.output_jsonl_fpath
        if unsafe and not self.job.force:
            raise DataError(
                f"{', '.join(unsafe)}: may need more than the row and the response for grading (see REVERIFY_MODE in "
                f"the server's config class), so the rewards may be wrong. Add --force to write them anyway, to "
                f"{UNSAFE}{path.name}."
            )
        return RunFiles(results=path.with_name(f"{UNSAFE}{path.name}") if unsafe else path)

    def begin(self, files: RunFiles, subject: RunSubject, secrets: SecretValues) -> Begun:
        """Prepare the output and return its existing rollouts. The caller must hold the output's lock.

        `subject` describes the servers that grade.
        """
        job, results = self.job, files.results
        keeps = job.append or job.resume_from_cache
        is_there = results.exists() and results.stat().st_size > 0
        is_input = results.exists() and any(path.exists() and results.samefile(path) for path in self._read())
        if is_input and not job.append:
            raise DataError(
                f"{results} is one of the inputs. Choose another output, or add --append to extend this file."
            )
        if not job.append:
            files.check_not_read(self._read())
        if is_there and not (keeps or job.overwrite):
            raise DataError(
                f"{results} already contains rollouts. Add --resume to grade only the "
                "missing ones, --overwrite to replace it, or choose another output."
            )
        if not (job.overwrite or (keeps and is_there)):
            check_companions(files)
        results.parent.mkdir(parents=True, exist_ok=True)
        files.metrics.unlink(missing_ok=True)
        earlier = read_record(files.record) if keeps and is_there else None
        if not (keeps and is_there):
            files.failures.unlink(missing_ok=True)
            files.ledger.unlink(missing_ok=True)
            good = read_rows(job.rollouts_jsonl_fpath) if job.judge_failed_only and not job.append else ()
            write_rows(results, good)
        agree(files, accepts_all=True)
        done = KeySet(TaskKey(each["task"], each["repeat"]) for each in events_in(files.ledger, "results"))
        planned, kept = len(self.stored.offsets), sum(key in done for key in self.stored.offsets)
        summary = Summary(planned=planned, scored=kept, kept=kept)
        hide = secrets.mask_bytes if secrets else None
        ledger = LedgerWriter(files, hide=hide)
        record = self._record(files, subject, earlier)
        # If the output is the rollouts file, its record stays that of the collection.
        is_extended = results.samefile(job.rollouts_jsonl_fpath)
        if is_extended:
            known = read_record(files.record)
            run_id, settings = known.run_id if known else None, {"regraded": str(source_of(job))}
            ledger.add(session_of(run_id or "", settings, subject))
        else:
            ledger.add(session_of(str(record.run_id), record.settings, subject))
        # Do not count tokens, because they were counted when the rollouts were collected.
        path = None if is_extended else files.record
        keeper = RecordKeeper(path, record, summary, ledger, secrets, counts_usage=False)
        return Begun(files, done, ledger, summary, keeper, hide)

    def _record(self, files: RunFiles, subject: RunSubject, earlier: RunRecord | None) -> RunRecord:
        """Return the record of the output. The policy and the settings are those of the stored rollouts."""
        source = read_record(RunFiles(results=self.job.rollouts_jsonl_fpath).record)
        models = source.models if source else {}
        limits = {} if self.job.limit is None else {"limit": self.job.limit}
        return RunRecord.begin(
            files.record,
            subject.model_copy(
                update={
                    "models": models | {k: v for k, v in subject.models.items() if k not in self.graders.policies},
                    "policy_model_name": source.policy_model_name if source else None,
                }
            ),
            (source.settings if source else {}) | limits,
            input_file=source.input if source else Fingerprint.of(self.job.materialized_inputs_jsonl_fpath),
            prompt=source.prompt if source else None,
            earlier=earlier,
            regraded=Fingerprint.of(source_of(self.job)),
        )

    def _read(self) -> Sequence[Path]:
        return (self.job.materialized_inputs_jsonl_fpath, self.job.rollouts_jsonl_fpath, source_of(self.job))


async def reverify(
    client: ServerClient,
    planned: Reverification,
    begun: Begun,
    *,
    on_record: OnRecord = lambda record, summary: None,
) -> None:
    """Grade the remaining rollouts. Write each record when it is ready and keep the summary up to date."""
    job, files, summary = planned.job, begun.files, begun.summary
    regrader = Regrader(client, planned.graders, rollout_timeout_s=job.rollout_timeout_s)
    limits = AttemptLimits.of(AttemptSettings(rollout_timeout_s=job.rollout_timeout_s), max_attempts())
    watch = RunWatch(client)
    groups = GroupedTasks(client, planned.grouped, limits, watch.confirm)
    rows = planned.rows(begun.done, groups)
    at_once = allowed_connections(
        job.num_samples_in_parallel or CollectionSettings.model_fields["num_samples_in_parallel"].default
    )
    with (
        Appender(files.results, hide=begun.hide) as results,
        Appender(files.failures, hide=begun.hide) as failures,
    ):
        recorder = Recorder(regrader, limits, watch, results, failures, begun.ledger, summary, on_record, groups)

        async def work() -> None:
            for row in rows:
                await recorder.run(row)

        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.watch())
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(at_once, summary.planned - summary.finished)):
                        workers.create_task(work())
                watching.cancel()
        except BaseExceptionGroup as errors:
            # Only fatal errors, such as a full disk or the end of the servers' run, reach this point.
            raise first_of(errors) from None
        finally:
            summary.close()


def _as_answered(row: Row, rollout: Row) -> Row:
    """Return a row with its stored response."""
    fields = {**row.fields, "response": rollout.response}
    if MEDIA_DIR_KEY in fields and MEDIA_DIR_KEY not in rollout.fields:
        # Use the media in the scored rollout, because the files that the row names may have moved.
        fields["responses_create_params"] = rollout.params
        del fields[MEDIA_DIR_KEY]
    return Row(fields)


async def _mode(client: ServerClient, server: str) -> ReverifyMode:
    try:
        reply = await client.get(server, "/reverify_mode")
    except ServerCallError as error:
        raise DataError(f"{server} does not report whether it supports reverification: {error}") from error
    try:
        return ReverifyMode(orjson.loads(await reply.read())) if reply.ok else ReverifyMode.UNKNOWN
    except ValueError:
        return ReverifyMode.UNKNOWN
