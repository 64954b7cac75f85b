"""The limit on open files of a server's process, connections included."""

from __future__ import annotations

import resource

OPEN_FILES = 65535


def raise_open_files_limit(wanted: int = OPEN_FILES) -> None:
    """Raise the limit on open files, because thousands of concurrent rollouts need as many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
