"""The runs on this machine and their tokens, as their launchers recorded them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, ValidationError

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR
from nemo_gym.config.hosts import leads_to
from nemo_gym.config.models import RunConfig
from nemo_gym.config.tls import Tls

logger = logging.getLogger(__name__)


class RunRecord(BaseModel):
    """The record of one run that this user started on this machine."""

    pid: int
    host: str
    """The address on which the run's head server listens."""
    port: int
    working_dir: str
    started_at: float
    """The time at which the run started, in seconds since the epoch."""
    agents: list[str] = Field(default_factory=list)
    """The names that rows may use for the run's agents."""
    run_token: str | None = Field(default=None, repr=False)
    """The token that the run's servers require; None if they do not require a token."""
    tls: Tls | None = None
    """TLS settings for calls to the run's servers; None if the servers do not use TLS."""
    has_joined: bool = False
    """Whether the process has joined another head server's run. If so, the run continues after the process ends."""
    beginning: int | None = None
    """The start time of the process, as returned by `beginning_of`."""

    @classmethod
    def of(cls, run: RunConfig) -> Self:
        """Return the record of a run that this process has started."""
        here, head = os.getcwd(), run.head
        return cls(
            pid=os.getpid(), host=head.host, port=head.port, working_dir=here, started_at=time.time(),
            agents=run.agent_names, run_token=run.run_token, tls=run.tls,
            has_joined=run.joins, beginning=beginning_of(os.getpid()),
        )  # fmt: skip

    @property
    def choice(self) -> str:
        """The flag that selects the run, followed by the folder in which the run was started."""
        return f"--head_server.port {self.port} (started in {self.working_dir})"

    @property
    def path(self) -> Path | None:
        """The file that holds the record; None if this user has no folder for it."""
        folder = record_dir()
        return folder / f"{self.pid}-{self.port}.json" if folder else None


# Keep the records in memory, too, because a process must reach its runs even if their records cannot be written.
_of_process: list[RunRecord] = []


def add_run(record: RunRecord) -> None:
    """Record a run of this process, in a file that only this user can read."""
    _of_process.append(record)
    if path := record.path:
        write_record(path, record, "commands in other terminals cannot find this run")


def remove_run(record: RunRecord) -> None:
    """Remove the record of a run that has ended."""
    _of_process.remove(record)
    if path := record.path:
        path.unlink(missing_ok=True)


def write_record(path: Path, record: BaseModel, loss: str) -> bool:
    """Write a record to a file that only this user can read, and return whether that worked.

    If not, for example because the disk is full, log a warning that says what is lost.
    """
    try:
        # Delete an existing file first, because it would keep its permissions.
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(record.model_dump_json())
    except OSError as error:
        logger.warning("%s: cannot be written (%s), so %s", path, error.strerror, loss)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True


def record_dir() -> Path | None:
    """Return the user's private folder for records, or None if it cannot be created. A reboot clears the folder."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
        folder = Path(base or tempfile.gettempdir()) / f"nemo_gym-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            # Check the owner, because in a shared folder another user could have created it to redirect commands.
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


def live_runs() -> list[RunRecord]:
    """Return the live runs, oldest first. Runs that were started in this working folder come last."""
    runs = list(_of_process)
    folder = record_dir()
    for path in folder.glob("*.json") if folder else ():
        with contextlib.suppress(OSError, ValidationError, json.JSONDecodeError):
            record = RunRecord.model_validate_json(path.read_bytes())
            if not is_alive(record.pid, record.beginning):
                path.unlink(missing_ok=True)
            elif record not in _of_process:
                runs.append(record)
    # Keep only the oldest record per head server, because several launchers of this machine may have joined one run.
    runs = list({(run.host, run.port): run for run in sorted(runs, key=lambda run: -run.started_at)}.values())
    here = os.getcwd()
    return sorted(runs, key=lambda run: (run.working_dir == here, run.started_at))


def run_token_for(host: str, port: int) -> str | None:
    """Return the token for the run whose head server is at this address, or None if the token is not known.

    For a run on this machine, return the token in the run's record. For any other run, return the value of the
    environment variable `NEMO_GYM_RUN_TOKEN`.
    """
    run = run_at(host, port)
    return run.run_token if run else os.environ.get(RUN_TOKEN_ENV_VAR) or None


def tls_for(host: str, port: int) -> Tls | None:
    """Return the TLS settings of the run whose head server is at this address; None if none are known or needed."""
    run = run_at(host, port)
    return run.tls if run else None


def run_at(host: str, port: int) -> RunRecord | None:
    """Return the record of this machine's run whose head server is at this address; None if no record matches."""
    # Compare the host, too, because another machine's server may use the same port and must not receive the token.
    return next((run for run in live_runs() if run.port == port and leads_to(host, run.host)), None)


def is_alive(pid: int, beginning: int | None = None) -> bool:
    """Return whether a process with this pid runs and, if `beginning` is given, began at that time.

    A zombie, which has ended but has not been reaped by its parent, does not count.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    status = _status_of(pid)
    return not status or (status[0] != "Z" and beginning in (None, int(status[19])))


def beginning_of(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot of the machine; None if the system does not report it.

    The time distinguishes processes with the same pid, because systems reuse the pids of ended processes.
    """
    status = _status_of(pid)
    return int(status[19]) if status else None


def _status_of(pid: int) -> list[str]:
    """Return the fields after the program's name in /proc/PID/stat, or an empty list if the file is unreadable."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
