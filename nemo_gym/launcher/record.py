"""Where a run's head server listens, written down so that later commands find it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel, ValidationError


class RunRecord(BaseModel):
    """One run on this machine, by this user."""

    pid: int
    host: str
    port: int
    working_dir: str
    started_at: float
    """Seconds since the epoch."""


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


def write_record(host: str, port: int) -> Path | None:
    """Note down a run of this process; the file's path, to be removed at the run's end."""
    folder = record_dir()
    if folder is None:
        return None
    record = RunRecord(pid=os.getpid(), host=host, port=port, working_dir=os.getcwd(), started_at=time.time())
    path = folder / f"{record.pid}-{port}.json"
    path.write_text(record.model_dump_json(), "utf-8")
    return path


def live_runs() -> list[RunRecord]:
    """The runs that are up, the latest last, those of this working folder behind all others."""
    runs = []
    folder = record_dir()
    for path in folder.glob("*.json") if folder else ():
        with contextlib.suppress(OSError, ValidationError, json.JSONDecodeError):
            record = RunRecord.model_validate_json(path.read_bytes())
            if _is_alive(record.pid):
                runs.append(record)
            else:
                path.unlink(missing_ok=True)
    here = os.getcwd()
    return sorted(runs, key=lambda run: (run.working_dir == here, run.started_at))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
