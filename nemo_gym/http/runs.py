"""The runs that are up on this machine, as their launchers noted them down, and the token that each asks for."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR, is_loopback


class RunRecord(BaseModel):
    """One run on this machine, by this user."""

    pid: int
    host: str
    port: int
    working_dir: str
    started_at: float
    """Seconds since the epoch."""
    run_token: str | None = Field(default=None, repr=False)
    """What its servers ask for; None where they ask for nothing."""


def record_dir() -> Path | None:
    """A folder of this user's own, gone after a reboot; None where none can be had."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
        folder = Path(base or tempfile.gettempdir()) / f"nemo_gym-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            # In a shared folder another user may have made it first, to send our commands elsewhere.
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


def live_runs() -> list[RunRecord]:
    """The runs that are up, the latest last, those of this working folder behind all others."""
    runs = []
    folder = record_dir()
    for path in folder.glob("*.json") if folder else ():
        with contextlib.suppress(OSError, ValidationError, json.JSONDecodeError):
            record = RunRecord.model_validate_json(path.read_bytes())
            if is_alive(record.pid):
                runs.append(record)
            else:
                path.unlink(missing_ok=True)
    here = os.getcwd()
    return sorted(runs, key=lambda run: (run.working_dir == here, run.started_at))


def run_token_for(host: str, port: int) -> str | None:
    """The token for the run whose head server listens there, where nobody has named it.

    Of a run on this machine, what its launcher noted down; of one elsewhere, what the environment holds.
    """
    for run in live_runs():
        # Another machine's server may well have the same port: it must not be sent the token of a run of ours.
        if run.port == port and (run.host == host or is_loopback(host)):
            return run.run_token
    return os.environ.get(RUN_TOKEN_ENV_VAR) or None


def is_alive(pid: int) -> bool:
    """Whether there is a process of this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
