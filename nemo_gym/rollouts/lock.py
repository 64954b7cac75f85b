"""A lock that allows one writer per output. The operating system releases it when the writer's process ends."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from nemo_gym.errors import DataError
from nemo_gym.jsonl import check_regular
from nemo_gym.rollouts.job import RunFiles

logger = logging.getLogger(__name__)

UNSUPPORTED = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS}


@contextmanager
def locked(files: RunFiles) -> Iterator[None]:
    """Hold the lock on a run's files. Raise `DataError`, which names the holder, if another process has the lock."""
    if files.results.is_dir():
        raise DataError(f"{files.results} is a folder. Name a file in it, such as {files.results / 'rollouts.jsonl'}.")
    for path in files.written:
        check_regular(path)
    try:
        files.lock.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{files.results}: cannot create its folder ({error.strerror}). Check the path.") from error
    held = _lock(files)
    try:
        if held is not None:
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()} {datetime.now():%Y-%m-%d %H:%M:%S}\n".encode(), 0)
        files.make_folder()
        yield
    finally:
        # Remove the folder if the run was rejected before it wrote anything.
        with suppress(OSError):
            files.folder.rmdir()
        if held is not None:
            # Remove the file before releasing the lock. A process that has already opened this file will try again.
            files.lock.unlink(missing_ok=True)
            os.close(held)


def is_locked(files: RunFiles) -> bool:
    """Return whether a process holds the lock on a run's files.

    If none does, this function takes the lock for a moment, and a collection that starts at this moment fails.
    """
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


def _lock(files: RunFiles) -> int | None:
    while True:
        try:
            opened = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataError(f"{files.lock}: cannot be created ({error.strerror}). Choose another output.") from error
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(opened)
            os.close(opened)
            raise DataError(
                f"{files.results}: another run is writing this file ({holder}). Wait for it, stop it, or choose "
                "another output."
            ) from None
        except OSError as error:
            os.close(opened)
            if error.errno not in UNSUPPORTED:
                raise
            logger.warning("%s: this file system does not support locks; run one collection at a time", files.lock)
            return None
        if _is_still(opened, files):
            return opened
        os.close(opened)


def _is_still(opened: int, files: RunFiles) -> bool:
    """Return whether the opened file is still the lock file. The former holder of the lock may have removed it."""
    try:
        return os.path.samestat(os.fstat(opened), files.lock.stat())
    except FileNotFoundError:
        return False


def _holder(opened: int) -> str:
    pid, _, since = os.pread(opened, 100, 0).decode("ascii", "replace").strip().partition(" ")
    return f"process {pid}, since {since}" if since else "just started"
