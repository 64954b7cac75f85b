"""How many files, and so how many connections, a server's process may have open."""

from __future__ import annotations

import resource

OPEN_FILES = 65535


def raise_open_files_limit(wanted: int = OPEN_FILES) -> None:
    """Thousands of rollouts at once need as many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
