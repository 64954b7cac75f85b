"""Whether a run is under way, and how it ended."""

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
"""A running collection writes its record every five seconds."""


def state_of(files: RunFiles, record: RunRecord | None) -> RunState:
    """Return the state of a run. A process that ended without recording it was killed."""
    if record is None:
        return "unknown"
    if record.state != "running":
        return record.state
    if record.host != socket.gethostname():
        return "running" if _age_of(files) < SILENT_S else "unknown"
    # The lock is only tried if the process seems to be gone, so that no collection that starts finds it taken. Another
    # process may have its number by now.
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
        # This file system has no locks.
        return False
    finally:
        os.close(opened)
    return False
