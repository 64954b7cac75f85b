"""The process's limit on open files, including connections, and the part of the limit that connections may use."""

from __future__ import annotations

import errno
import os
import resource

OPEN_FILES = 65535
"""The limit on open files to assume if the system does not set one."""
RESERVED_FILES = 128
"""The number of file descriptors that outgoing connections leave free for files, pipes and incoming connections.

If the limit on open files is low, they leave free only a quarter of it.
"""
ADVICE = "raise ulimit -n"
TOO_MANY_FILES = f"this process has too many open files; {ADVICE}"
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


def raise_open_files_limit(wanted: int | None = None) -> None:
    """Raise the limit on open files to `wanted`, by default as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted or OPEN_FILES if hard == resource.RLIM_INFINITY else min(wanted or hard, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def open_files_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def most_incoming_calls(limit: int | None = None) -> int:
    """Return how many connections a server may accept. The server needs the other descriptors for its own calls."""
    limit = limit or open_files_limit()
    return max(1, (limit - _reserved(limit)) * 5 // 6)


def has_room() -> bool:
    """Return whether this process may open another connection without using reserved descriptors."""
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if is_out_of_files(error):
            return False
        raise
    os.close(lowest)
    # The system assigns the lowest free number, so `lowest` is the number of descriptors in use.
    limit = open_files_limit()
    return lowest < limit - _reserved(limit)


def is_out_of_files(error: BaseException) -> bool:
    """Return whether a call failed because this process, or the system, cannot open another file."""
    return isinstance(error, OSError) and error.errno in _OUT_OF_FILES


def no_free_connection(seconds: float) -> str:
    """Return the message for a request that timed out because no file descriptor became free."""
    return f"no free connection within {seconds:.3g} s: this process may open {open_files_limit()} files; {ADVICE}"


def _reserved(limit: int) -> int:
    return min(RESERVED_FILES, limit // 4)
