"""`<output>_run.json`: what a run was asked, by whom and with what, and what came of it."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from nemo_gym.config.masking import MASK, is_secret_key, mask_text, masked
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.rollouts.concurrency import AdaptiveLimit
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.subject import RunSubject
from nemo_gym.version import __version__

logger = logging.getLogger(__name__)

UNTOLD_SETTINGS = {"output_jsonl_fpath", "resume_from_cache", "overwrite"}
WRITE_EVERY_S = 5.0

State = Literal["running", "finished", "interrupted", "stopped", "killed"]

_NAMED_VALUE = re.compile(r"([\w.-]+)(['\"]?\s*[:=]\s*)(['\"]?)([^\s'\",{}\[\]]+)")


class Fingerprint(BaseModel):
    """A file as it was."""

    path: str
    sha256: str
    bytes: int
    rows: int | None = None

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Read a file once, whole."""
        digest, size, rows = hashlib.sha256(), 0, 0
        with path.open("rb") as file:
            for line in file:
                digest.update(line)
                size += len(line)
                rows += not line.isspace()
        return cls(path=str(path), sha256=digest.hexdigest(), bytes=size, rows=rows)


class Outcomes(BaseModel):
    """planned = scored + failed + unresolved, once the run has ended."""

    planned: int
    scored: int
    kept: int
    """How many of the scored were there when the session began."""
    failed: dict[str, int]
    unresolved: int
    repeated_attempts: int

    @classmethod
    def of(cls, summary: Summary) -> Outcomes:
        """As things stand: what has not ended is unresolved, or failed where an attempt did."""
        failed = summary.failed_by_cause + summary.failed_before
        return cls(
            planned=summary.planned,
            scored=summary.scored,
            kept=summary.kept,
            failed=dict(failed),
            unresolved=summary.planned - summary.scored - failed.total(),
            repeated_attempts=summary.repeated,
        )


class Session(BaseModel):
    """One process that worked on the run."""

    state: State = "running"
    """`killed` is told by a later session of one that said nothing of its end."""
    reason: str | None = None
    """Why it was stopped."""
    started_at: str
    ended_at: str | None = None
    command: list[str]
    pid: int
    host: str
    versions: dict[str, str]
    outcomes: Outcomes
    concurrency: int | None = None
    """How many rollouts could be under way at once; at last, where that was found by trying."""
    concurrency_steps: list[dict[str, Any]] | None = None
    """What was tried, and what it brought."""


class RunRecord(Session):
    """The run as its latest session left it, and the sessions before."""

    config_hash: str | None = None
    models: dict[str, dict[str, Any]] = Field(default_factory=dict)
    policy_model_name: str | None = None
    input: Fingerprint
    prompt: Fingerprint | None = None
    settings: dict[str, Any]
    earlier_sessions: list[Session] = Field(default_factory=list)

    @classmethod
    def begin(
        cls,
        subject: RunSubject,
        settings: CollectionSettings,
        summary: Summary,
        *,
        input_file: Fingerprint,
        prompt: Fingerprint | None,
        earlier: RunRecord | None,
    ) -> RunRecord:
        """The record of a run that begins now, in this process; `earlier` is of the one that it goes on with."""
        told = settings.model_dump(mode="json", exclude=UNTOLD_SETTINGS)
        return cls(
            started_at=_now(),
            command=masked_command(sys.argv),
            pid=os.getpid(),
            host=socket.gethostname(),
            versions={"nemo_gym": __version__, "python": platform.python_version()},
            outcomes=Outcomes.of(summary),
            config_hash=subject.config_hash,
            models=subject.models,
            policy_model_name=subject.policy_model_name,
            input=input_file,
            prompt=prompt,
            settings=masked(told),
            earlier_sessions=[*earlier.earlier_sessions, earlier.as_earlier()] if earlier else [],
        )

    @property
    def subject(self) -> RunSubject:
        """What the run was about."""
        return RunSubject(models=self.models, policy_model_name=self.policy_model_name, config_hash=self.config_hash)

    def as_earlier(self) -> Session:
        """What a later session keeps of this one."""
        told = Session.model_validate(self.model_dump(include=set(Session.model_fields)))
        # Whoever reads this holds the lock, so a session that says it is running is not.
        return told.model_copy(update={"state": "killed"}) if told.state == "running" else told


def read_record(path: Path) -> RunRecord | None:
    """What is known of an earlier run; None where nothing is."""
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        logger.warning("%s cannot be read, so nothing is known of the models of the earlier run (%s)", path, error)
        return None


class RecordKeeper:
    """Keeps the record of this process's run up to date on the disk; where that fails, the run goes on without."""

    def __init__(self, path: Path, record: RunRecord, summary: Summary, secrets: SecretValues) -> None:
        self._secrets = secrets
        self._path = path
        self._record = record
        self._summary = summary
        self._written_at = -WRITE_EVERY_S
        self._concurrency: int | AdaptiveLimit | None = None
        self._writing = Lock()
        self.write()

    def is_due(self) -> bool:
        """Whether the record has not been written for a while."""
        return time.monotonic() - self._written_at >= WRITE_EVERY_S

    def write(self) -> None:
        """Write it whole or not at all; may be called in another thread."""
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        with self._writing:
            self._written_at = time.monotonic()
            self._record.outcomes = Outcomes.of(self._summary)
            self._note_concurrency()
            try:
                text = self._record.model_dump_json(indent=2) + "\n"
                partial.write_bytes(self._secrets.mask_bytes(text.encode()))
                partial.replace(self._path)
            except OSError as error:
                logger.warning("%s: the record of the run cannot be written (%s)", self._path, error.strerror)
                partial.unlink(missing_ok=True)

    def runs_with(self, concurrency: int | AdaptiveLimit) -> None:
        """Note how many rollouts can be under way at once; a limit that adapts is looked at with every writing."""
        self._concurrency = concurrency

    def _note_concurrency(self) -> None:
        if isinstance(self._concurrency, AdaptiveLimit):
            self._record.concurrency = self._concurrency.limit
            self._record.concurrency_steps = [step.told() for step in self._concurrency.steps]
        else:
            self._record.concurrency = self._concurrency

    def end(self, state: State, reason: str | None = None) -> None:
        """Say how the run ended; the first word counts."""
        if self._record.state == "running":
            self._record.state = state
            self._record.reason = reason and mask_text(reason)
            self._record.ended_at = _now()
            self.write()


def masked_command(words: Sequence[str]) -> list[str]:
    """A command line without its secrets: by the name of the key before a value, and by the look of the value."""
    told: list[str] = []
    hides_next = False
    for word in words:
        told.append(MASK if hides_next else mask_text(_NAMED_VALUE.sub(_masked_value, word)))
        hides_next = word.startswith("--") and "=" not in word and is_secret_key(word)
    return told


def _masked_value(found: re.Match[str]) -> str:
    name, between, quote, value = found.groups()
    return f"{name}{between}{quote}{MASK if is_secret_key(name.rpartition('.')[2]) else value}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
