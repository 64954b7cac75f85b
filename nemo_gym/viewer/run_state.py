"""Find out whether a run is still running, and how it ended."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import Literal

from nemo_gym.calls.running import is_alive
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.run_record import RunRecord

RunState = Literal["running", "finished", "interrupted", "stopped", "killed", "unknown"]
SILENT_S = 60.0
"""The age in seconds from which a record is outdated. A running collection updates its record every 5 s."""


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
    return "running" if is_there or _is_locked(files) else "killed"


def _age_of(files: RunFiles) -> float:
    try:
        return time.time() - files.record.stat().st_mtime
    except OSError:
        return float("inf")


def _is_locked(files: RunFiles) -> bool:
    try:
        opened = os.open(files.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # The file system does not support locks, so no process can hold this lock.
        return False
    finally:
        os.close(opened)
    return False
