"""Grade stored rollouts again: send each row with its response to the resources server, without a policy model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import orjson

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.settings import AGENT_TIER, GROUP_KEY, POLICY_MODEL, RESOURCES_TIER
from nemo_gym.errors import ConfigError, DataError, EnvironmentFailed, RolloutError, ServerCallError
from nemo_gym.jsonl import Appender, loads_exact, parse_row, read_lines_at, read_raw_lines, read_rows, write_rows
from nemo_gym.rollouts.attempts import AttemptLimits
from nemo_gym.rollouts.collector import OnRecord, Recorder, allowed_connections, first_of
from nemo_gym.rollouts.group_order import group_sizes, offsets_of, stored_at
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.job import (
    AttemptSettings,
    CollectionSettings,
    RunFiles,
)
from nemo_gym.rollouts.line_digests import LineDigests, accept_lines
from nemo_gym.rollouts.opening import check_companions
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.resume import KeySet, cut_torn_line, keyed_rows, max_attempts
from nemo_gym.rollouts.run_record import Fingerprint, RecordKeeper, RunRecord, read_record
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import Runner
from nemo_gym.rollouts.stored_rollouts import ReverificationJob, Stored, source_of
from nemo_gym.rollouts.subject import RunSubject, ServerBlock
from nemo_gym.schemas.rollout import ReverifyMode
from nemo_gym.schemas.row import MEDIA_DIR_KEY, PARAMS_KEY, Row, TaskKey, rows_at

UNSAFE = "unsafe_"


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
    def among(cls, blocks: Iterable[ServerBlock], aliases: Mapping[str, str] | None = None) -> Graders:
        """Find the resources server that each agent names. `aliases` maps further agent names to agents."""
        of_agent, resources, in_groups, policies = {}, [], [], {POLICY_MODEL}
        for block in blocks:
            named = block.settings.get("resources_server")
            model = block.settings.get("model_server")
            if block.tier == AGENT_TIER and isinstance(model, Mapping):
                policies.add(str(model.get("name")))
            if block.tier == AGENT_TIER and isinstance(named, Mapping) and "name" in named:
                of_agent[block.name] = str(named["name"])
            elif block.tier == RESOURCES_TIER:
                resources.append(block.name)
                if block.settings.get(GROUP_KEY) is not None:
                    in_groups.append(block.name)
        of_agent |= {alias: of_agent[agent] for alias, agent in (aliases or {}).items() if agent in of_agent}
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
    summary: Summary
    earlier: RunRecord | None = None
    """The earlier record of the output; None if the output is new, or if the record is missing or unreadable."""


@dataclass(frozen=True)
class Reverification:
    """A plan for grading rollouts again: the rollouts, and the servers that grade them."""

    job: ReverificationJob
    graders: Graders
    lines: Mapping[TaskKey, int]
    inputs: Mapping[TaskKey, bytes]
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
        return cls(stored.job, graders, stored.lines, stored.inputs, frozenset(filter(None, found.values())), grouped)

    def rows(self, done: KeySet, groups: GroupedTasks) -> Iterator[Row]:
        """Yield the rows that are not in `done`, each with its stored response. If there are groups, order by task."""
        return self._in_order_of_tasks(done, groups) if self.grouped else self._in_order_of_lines(done)

    def _in_order_of_lines(self, done: KeySet) -> Iterator[Row]:
        source = source_of(self.job)
        for number, raw in read_raw_lines(source):
            rollout = Row(parse_row(raw, source, number))
            if self.lines.get(rollout.key) == number and rollout.key not in done:
                yield _as_answered(Row(loads_exact(self.inputs[rollout.key])), rollout)

    def _in_order_of_tasks(self, done: KeySet, groups: GroupedTasks) -> Iterator[Row]:
        source, rollouts = source_of(self.job), self.job.rollouts_jsonl_fpath
        pending: dict[int, dict[int, int]] = {}
        graded: dict[int, dict[int, int]] = {}
        for offset, (number, raw) in read_lines_at(source):
            key = Row(parse_row(raw, source, number)).key
            if self.lines.get(key) == number:
                (graded if key in done else pending).setdefault(key.task, {})[key.repeat] = offset
        stored = offsets_of(rollouts, pending)
        planned = offsets_of(self.job.materialized_inputs_jsonl_fpath, pending)
        for task, offsets in pending.items():
            rows = {repeat: Row(loads_exact(self.inputs[TaskKey(task, repeat)])) for repeat in offsets}
            if groups.key_of(next(iter(rows.values()))) is not None:
                others = stored_at(source, graded.get(task, {})) | stored_at(rollouts, stored.get(task, {}))
                rest = [repeat for repeat in planned[task] if repeat not in offsets]
                groups.expect(
                    next(iter(rows.values())),
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

    def begin(self, files: RunFiles) -> Begun:
        """Prepare the output and return its existing rollouts. The caller must hold the output's lock."""
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
        if keeps and is_there:
            cut_torn_line(results)
            if not files.digests.exists():
                accept_lines(files)
        else:
            files.failures.unlink(missing_ok=True)
            good = read_rows(job.rollouts_jsonl_fpath) if job.judge_failed_only and not job.append else ()
            write_rows(results, good)
            accept_lines(files)
        done = KeySet(key for key, _ in keyed_rows(results))
        kept = sum(key in done for key in self.lines)
        return Begun(files, done, Summary(planned=len(self.lines), scored=kept, kept=kept), earlier)

    def record(self, begun: Begun, subject: RunSubject, secrets: SecretValues) -> RecordKeeper | None:
        """Start the record of the output. Return None if the output is the rollouts file, whose record is not changed.

        `subject` describes the servers that grade. The policy and the settings are those of the stored rollouts.
        """
        rollouts = self.job.rollouts_jsonl_fpath
        if begun.files.results.samefile(rollouts):
            return None
        source = read_record(RunFiles(results=rollouts).record)
        models = source.models if source else {}
        limits = {} if self.job.limit is None else {"limit": self.job.limit}
        record = RunRecord.begin(
            subject.model_copy(
                update={
                    "models": models | {k: v for k, v in subject.models.items() if k not in self.graders.policies},
                    "policy_model_name": source.policy_model_name if source else None,
                }
            ),
            (source.settings if source else {}) | limits,
            begun.summary,
            input_file=source.input if source else Fingerprint.of(self.job.materialized_inputs_jsonl_fpath),
            prompt=source.prompt if source else None,
            earlier=begun.earlier,
            regraded=Fingerprint.of(source_of(self.job)),
        )
        # Do not count tokens, because they were counted when the rollouts were collected.
        return RecordKeeper(begun.files.record, record, begun.summary, secrets, counts_usage=False)

    def _read(self) -> Sequence[Path]:
        return (self.job.materialized_inputs_jsonl_fpath, self.job.rollouts_jsonl_fpath, source_of(self.job))


async def reverify(
    client: ServerClient,
    planned: Reverification,
    begun: Begun,
    *,
    on_record: OnRecord = lambda record, summary: None,
    hide: Callable[[bytes], bytes] | None = None,
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
        LineDigests(files) as digests,
        Appender(files.results, hide=hide, announce=digests.add) as results,
        Appender(files.failures, hide=hide) as failures,
    ):
        recorder = Recorder(regrader, limits, watch, results, failures, summary, on_record, groups)

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
        fields[PARAMS_KEY] = rollout.params
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
