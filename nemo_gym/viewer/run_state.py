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
"""A record older than this is not a sign of life, because a running collection writes it every five seconds."""


def state_of(files: RunFiles, record: RunRecord | None) -> RunState:
    """Return the state of a run. If its process ended without recording how, the run was killed."""
    if record is None:
        return "unknown"
    if record.state != "running":
        return record.state
    if record.host != socket.gethostname():
        return "running" if _age_of(files) < SILENT_S else "unknown"
    # Try the lock only if the process seems to be gone, so that a starting collection does not find it taken. The age
    # is checked too, because another process may have the same id by now.
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
        # The file system does not support locks.
        return False
    finally:
        os.close(opened)
    return False
