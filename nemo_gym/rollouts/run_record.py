"""`<output>_run.json`: the command, inputs, settings and outcomes of a run."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Literal, Self, cast

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from nemo_gym.calls.running import is_alive
from nemo_gym.config.masking import MASK, is_secret_key, mask_text, masked
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.subject import RunSubject
from nemo_gym.jsonl import JsonObject, replacing
from nemo_gym.rollouts import ledger as events
from nemo_gym.rollouts.concurrency import AdaptiveLimit, FixedLimit
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.ledger_writer import LedgerWriter
from nemo_gym.rollouts.lock import is_locked
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.usage import PriceFile
from nemo_gym.version import __version__

logger = logging.getLogger(__name__)

OMITTED_SETTINGS = {"output_jsonl_fpath", "resume_from_cache", "overwrite", "detach", "yes"}
WRITE_EVERY_S = 5.0
CONTROL_KEPT = 200

EXIT_CODES = {"interrupted": 130, "stopped": 1}
"""The exit codes of commands that ended early, by the state of their session."""

State = Literal["running", "finished", "interrupted", "stopped", "killed"]
RunState = State | Literal["unknown"]
SILENT_S = 60.0
"""The age in seconds from which a record is outdated. A running collection updates its record every 5 s."""

_NAMED_VALUE = re.compile(r"([\w.-]+)(['\"]?\s*[:=]\s*)(['\"]?)([^\s'\",{}\[\]]+)")


class Fingerprint(BaseModel):
    """The identity of a file's content at one point in time."""

    path: str
    sha256: str
    bytes: int
    rows: int | None = None
    """The number of lines that are not blank."""

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        digest, size, rows = hashlib.sha256(), 0, 0
        with path.open("rb") as file:
            for line in file:
                digest.update(line)
                size += len(line)
                rows += not line.isspace()
        return cls(path=str(path), sha256=digest.hexdigest(), bytes=size, rows=rows)


class Outcomes(BaseModel):
    """The outcomes of a run's rollouts: planned = scored + failed + unresolved."""

    planned: int
    scored: int
    """The number of scored rollouts, including those of earlier sessions."""
    kept: int
    """The number of scored rollouts that existed when the session started."""
    failed: dict[str, int]
    """The number of failed rollouts, by the cause of their last failure."""
    unresolved: int
    repeated_attempts: int
    """The number of failed attempts in this session that were followed by a retry."""

    @classmethod
    def of(cls, summary: Summary) -> Outcomes:
        """Return the outcomes. A rollout in progress counts as failed if an attempt failed, else as unresolved."""
        failed = summary.failed_by_cause + summary.failed_before
        return cls(
            planned=summary.planned,
            scored=summary.scored,
            kept=summary.kept,
            failed=dict(failed),
            unresolved=summary.planned - summary.scored - failed.total(),
            repeated_attempts=summary.repeated,
        )


class SlurmStep(BaseModel):
    """The Slurm job in which a process runs, and the attempt of this job."""

    job_id: str
    attempt: int
    """The number of the job's attempt, from 1. A requeued job keeps its id, but starts a new attempt."""
    nodes: str
    """The job's nodes, in Slurm's notation."""

    @classmethod
    def here(cls) -> SlurmStep | None:
        """Return the Slurm job of this process, or None if the process does not run in a Slurm job."""
        job_id, restarts = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", "")
        if not job_id:
            return None
        attempt = int(restarts) + 1 if restarts.isdecimal() else 1
        return cls(job_id=job_id, attempt=attempt, nodes=os.environ.get("SLURM_JOB_NODELIST", ""))


class Session(BaseModel):
    """The record of one process that worked on the run. Resuming the run begins another session."""

    state: State = "running"
    """The current state. The next session sets `killed` if this one did not record its end."""
    reason: str | None = None
    """The error that stopped the session."""
    started_at: str
    """The start time in UTC, in ISO 8601."""
    ended_at: str | None = None
    command: list[str]
    """The command line, with its secrets masked."""
    pid: int
    host: str
    versions: dict[str, str]
    """The versions of nemo_gym and Python."""
    outcomes: Outcomes
    concurrency: int | None = None
    """Maximum number of concurrent rollouts. If this limit is adaptive, its latest value."""
    concurrency_steps: list[dict[str, object]] | None = None
    """The latest measurement windows of an adaptive limit, at most 200, each with the resulting limit."""
    control: list[dict[str, object]] | None = None
    """The latest requests with `ng eval ctl`, each with `at`, `verb`, its arguments and the `answer`."""
    exit_code: int | None = None
    """The exit code of the command; null until it has ended."""
    usage: dict[str, object] | None = None
    """The tokens of the run's rollouts so far, and their cost if the run has a price file."""
    model_cache: dict[str, int] | None = None
    """The numbers of model calls that the cache answered (`hits`) and did not answer (`misses`)."""
    engine_calls: dict[str, dict[str, int]] | None = None
    """For each model server with several engines, the calls that stayed with their rollout's engine (`kept`) and those
    that went to another one (`moved`)."""
    ended_by: str | None = None
    """The limit, or the request with `ng eval ctl`, that kept the session from starting further rollouts."""
    slurm: SlurmStep | None = None
    """The Slurm job in which the session's process ran; null outside Slurm."""


class RunRecord(Session):
    """The record of a run: the fields of its latest session, and its earlier sessions."""

    run_id: str | None = None
    """The run's id. It stays the same when the run is resumed."""
    config_hash: str | None = None
    """A hash of all servers' settings."""
    models: dict[str, JsonObject] = Field(default_factory=dict)
    """The settings of each model server, without addresses and keys."""
    policy_model_name: str | None = None
    """The name of the policy model; null if it is not set, or if the run's model servers do not use it."""
    unsupported_pairings: list[str] = Field(default_factory=list)
    """A message for each agent or model that the run uses although an environment or agent does not allow it."""
    environments: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The version and the digest of each installed package with an environment of the run, by the package's name."""
    input: Fingerprint
    """The task file, with its SHA-256 and numbers of bytes and rows."""
    prompt: Fingerprint | None = None
    settings: JsonObject
    regraded: Fingerprint | None = None
    """The file of rollouts that `ng eval reverify` graded again. The input, the settings and the policy are those of
    the original run."""
    earlier_sessions: list[Session] = Field(default_factory=list)
    """The earlier sessions of a resumed run, oldest first, without `run_id` and the other fields of the whole run."""

    @property
    def phase(self) -> str | None:
        """`draining` or `paused`, if a user asked for that in the latest session and it was not refused."""
        verbs = [each["verb"] for each in self.control or () if "error" not in cast("JsonObject", each["answer"])]
        turned = [verb for verb in verbs if verb in ("pause", "resume")]
        return "draining" if "drain" in verbs else "paused" if turned and turned[-1] == "pause" else None

    @classmethod
    def begin(
        cls,
        path: Path,
        subject: RunSubject,
        settings: Mapping[str, object],
        *,
        input_file: Fingerprint,
        prompt: Fingerprint | None,
        earlier: RunRecord | None,
        regraded: Fingerprint | None = None,
    ) -> RunRecord:
        """Return the record at `path` of a run that starts now in this process, without its outcomes.

        `earlier` is the record of a resumed run.
        """
        record = cls(
            started_at=_now(),
            command=masked_command(sys.argv),
            pid=os.getpid(),
            host=socket.gethostname(),
            versions=_versions(),
            outcomes=Outcomes.of(Summary()),
            slurm=SlurmStep.here(),
            config_hash=subject.config_hash,
            models=subject.models,
            policy_model_name=subject.policy_model_name,
            unsupported_pairings=subject.unsupported_pairings,
            environments=subject.environments,
            input=input_file,
            prompt=prompt,
            settings=masked(settings),
            regraded=regraded,
            earlier_sessions=[*earlier.earlier_sessions, earlier.as_earlier()] if earlier else [],
        )
        first = record.first_session
        parts = (path.resolve(), first.host, first.pid, first.started_at)
        record.run_id = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:16]
        return record

    @property
    def first_session(self) -> Session:
        return self.earlier_sessions[0] if self.earlier_sessions else self

    @property
    def subject(self) -> RunSubject:
        return RunSubject(models=self.models, policy_model_name=self.policy_model_name, config_hash=self.config_hash)

    def as_earlier(self) -> Session:
        """Return the session of this record, for the `earlier_sessions` of a later record."""
        session = Session.model_validate(self.model_dump(include=set(Session.model_fields)))
        # Because this process holds the output's lock, a session recorded as running must have been killed.
        return session.model_copy(update={"state": "killed"}) if session.state == "running" else session


def session_of(run_id: str, settings: JsonObject, subject: RunSubject, plan: str | None = None) -> events.Session:
    """Return the event for the start of this process's work on a run."""
    return events.Session(
        time.time(), run_id, os.getpid(), socket.gethostname(), masked_command(sys.argv), _versions(), settings,
        subject.model_dump(exclude_defaults=True), plan,
    )  # fmt: skip


def _versions() -> dict[str, str]:
    return {"nemo_gym": __version__, "python": platform.python_version()}


def recorded_settings(settings: CollectionSettings) -> Mapping[str, object]:
    """Return the settings without those in `OMITTED_SETTINGS`, which do not affect the results."""
    return settings.model_dump(mode="json", exclude=OMITTED_SETTINGS)


def read_record(path: Path) -> RunRecord | None:
    """Return the record of an earlier run, or None if it is missing or unreadable."""
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("%s is unreadable (%s), so it counts as missing", path, error.strerror)
    except ValidationError as error:
        first = error.errors()[0]
        problem = ": ".join((*map(str, first["loc"]), first["msg"]))
        logger.warning("%s is unreadable (%s), so it counts as missing", path, problem)
    return None


class RecordKeeper:
    """The writer of this process's run record. If writing fails, the run continues without a record."""

    def __init__(
        self,
        path: Path | None,
        record: RunRecord,
        summary: Summary,
        ledger: LedgerWriter,
        secrets: SecretValues,
        *,
        prices: PriceFile | None = None,
        counts_usage: bool = True,
    ) -> None:
        """`ledger` also gets the control requests and the end of the session. If `path` is None, it alone is written.

        As a context manager, record how the block ended, and close the ledger.
        """
        self._ledger = ledger
        self._secrets = secrets
        self._prices = prices
        self._counts_usage = counts_usage
        self._path = path
        self._record = record
        self._summary = summary
        self._written_at = -WRITE_EVERY_S
        self.concurrency: FixedLimit | AdaptiveLimit | None = None
        """The concurrency limit to record. Its current value is read at every write."""
        self._writing = Lock()
        self.run_id = str(record.run_id)
        self.write()

    def is_due(self) -> bool:
        """Return whether the last write was at least `WRITE_EVERY_S` seconds ago."""
        return time.monotonic() - self._written_at >= WRITE_EVERY_S

    def write(self) -> None:
        """Write the record atomically. Thread-safe."""
        if self._path is None:
            return
        with self._writing:
            self._written_at = time.monotonic()
            self._record.outcomes = Outcomes.of(self._summary)
            if self._counts_usage:
                self._record.usage = self._summary.usage.as_dict(self._prices)
            cached = self._summary.model_cache
            self._record.model_cache = None if cached is None else cached._asdict()
            self._record.engine_calls = self._summary.engine_calls or None
            self._record.ended_by = self._summary.ended_by
            if self.concurrency is not None:
                self._record.concurrency = self.concurrency.limit
            if isinstance(self.concurrency, AdaptiveLimit):
                self._record.concurrency_steps = [step.as_dict() for step in self.concurrency.steps]
            try:
                with replacing(self._path) as partial:
                    partial.write_bytes(self._secrets.mask_bytes(_as_text(self._record)))
            except OSError as error:
                logger.warning("%s: cannot write the run's record (%s)", self._path, error.strerror)

    def note_control(self, entry: JsonObject) -> None:
        """Add a request with its answer, and write the record before the answer is sent."""
        self._record.control = [*(self._record.control or ()), entry][-CONTROL_KEPT:]
        arguments = {key: value for key, value in entry.items() if key not in ("at", "verb", "answer")}
        self._ledger.add(events.Control(time.time(), str(entry["verb"]), arguments, entry["answer"]))
        self.write()

    def exits_with(self, code: int) -> None:
        self._record.exit_code = code
        self.write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        try:
            if error is None:
                self.end("finished")
            elif isinstance(error, Exception):
                self.end("stopped", str(error) or repr(error))
            else:
                self.end("interrupted")
        finally:
            self._ledger.close()

    def end(self, state: State, reason: str | None = None) -> None:
        """Record how the run ended. Only the first call has an effect."""
        if self._record.state == "running":
            self._record.exit_code = EXIT_CODES.get(state, self._record.exit_code)
            self._record.state = state
            self._record.reason = reason and mask_text(reason)
            self._record.ended_at = _now()
            self._ledger.end(state, self._record.reason)
            self.write()


def _as_text(record: RunRecord) -> bytes:
    """Return the record as JSON with one field per line, because hundreds of points would fill as many lines."""
    fields = [f"  {to_json(name).decode()}: {to_json(value, inf_nan_mode='null').decode()}" for name, value in record]
    return ("{\n" + ",\n".join(fields) + "\n}\n").encode()


def masked_command(words: Sequence[str]) -> list[str]:
    """Return a command line with its secrets masked.

    A secret is recognized by its key or by the form of its value.
    """
    shown: list[str] = []
    hides_next = False
    for word in words:
        shown.append(MASK if hides_next else mask_text(_NAMED_VALUE.sub(_masked_value, word)))
        hides_next = word.startswith("--") and "=" not in word and is_secret_key(word)
    return shown


def _masked_value(found: re.Match[str]) -> str:
    name, between, quote, value = found.groups()
    return f"{name}{between}{quote}{MASK if is_secret_key(name.rpartition('.')[2]) else value}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def state_of(files: RunFiles, record: RunRecord | None) -> RunState:
    """Return the state of a run. A run whose process ended without recording a final state was killed."""
    if record is None:
        return "unknown"
    if record.state != "running":
        return record.state
    if record.host != socket.gethostname():
        return "running" if _age_of(files) < SILENT_S else "unknown"
    # Test the lock only if the process seems to have ended. The test takes the lock for a moment, and a collection
    # that starts at this moment fails. Also check the age of the record, because process ids are reused.
    is_there = is_alive(record.pid) and _age_of(files) < SILENT_S
    return "running" if is_there or is_locked(files) else "killed"


def _age_of(files: RunFiles) -> float:
    try:
        return time.time() - files.record.stat().st_mtime
    except OSError:
        return float("inf")


def is_running(files: RunFiles) -> bool:
    """Return whether a process works on a run, even if it has not begun to record its own session yet."""
    return state_of(files, read_record(files.record)) == "running" or is_locked(files)
