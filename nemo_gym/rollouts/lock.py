"""One output, one writer: a lock that the system takes back when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from nemo_gym.errors import DataError
from nemo_gym.rollouts.job import RunFiles

logger = logging.getLogger(__name__)

UNSUPPORTED = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS}


@contextmanager
def locked(files: RunFiles) -> Iterator[None]:
    """Be the only run that writes these files; `DataError` names the process that does so already."""
    if files.results.is_dir():
        raise DataError(
            f"{files.results}: is a folder. Name a file in it, such as {files.results / 'rollouts.jsonl'}."
        )
    try:
        files.lock.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{files.results}: its folder cannot be made ({error.strerror}).") from error
    held = _lock(files)
    try:
        if held is not None:
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()} {datetime.now():%Y-%m-%d %H:%M:%S}\n".encode(), 0)
        yield
    finally:
        if held is not None:
            # Removed while it is held: whoever opened it meanwhile finds that it is no longer the file of that name.
            files.lock.unlink(missing_ok=True)
            os.close(held)


def _lock(files: RunFiles) -> int | None:
    while True:
        try:
            opened = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataError(f"{files.results}: nothing can be written there ({error.strerror}).") from error
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = _holder(opened)
            os.close(opened)
            raise DataError(
                f"{files.results}: another run is writing it ({told}). Wait for its end, stop it, or choose another "
                "output."
            ) from None
        except OSError as error:
            os.close(opened)
            if error.errno not in UNSUPPORTED:
                raise
            logger.warning("%s: this file system has no locks; let one run at a time write there", files.lock)
            return None
        if _is_still(opened, files):
            return opened
        os.close(opened)


def _is_still(opened: int, files: RunFiles) -> bool:
    """Whether the file that was opened is the one of that name, not one that its holder has removed since."""
    try:
        return os.path.samestat(os.fstat(opened), files.lock.stat())
    except FileNotFoundError:
        return False


def _holder(opened: int) -> str:
    pid, _, since = os.pread(opened, 100, 0).decode("ascii", "replace").strip().partition(" ")
    return f"process {pid}, since {since}" if since else "it has just begun"
