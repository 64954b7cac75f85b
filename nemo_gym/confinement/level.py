"""How far code can be confined on this machine, and what to say where it cannot."""

from __future__ import annotations

from typing import NamedTuple

SPARE_UIDS = range(61_184, 65_520)
"""Set aside for services that get a user of their own at their start; no account has one of these for good."""
OWN_PROCESSES = 8
"""Of a group's processes those that are ours: bubblewrap, what runs inside, and some to spare."""
NOT_INSTALLED = "bubblewrap is not installed"


class Level(NamedTuple):
    """How far programs are confined here, and why no further."""

    is_confined: bool
    has_groups: bool
    problem: str = ""

    def __str__(self) -> str:
        if not self.is_confined:
            return "resource limits only"
        return "bubblewrap, control groups" if self.has_groups else "bubblewrap"


def cannot_start(said: str) -> Level:
    """The level where bubblewrap is there and starts nothing; `said` is what it told."""
    return Level(False, False, f"bubblewrap cannot start a sandbox here ({said.strip() or 'nothing was said'})")


def refusal(level: Level) -> str:
    """Why untrusted code is not run, and what to do."""
    return (
        f"Code that a model wrote is not run here: {level.problem}. Install bubblewrap 0.7 or newer (on Debian or "
        "Ubuntu: apt-get install bubblewrap) and see that `bwrap` may make namespaces, as root or as a user who may "
        "have user namespaces. Or set `allow_unconfined: true`: then the code runs as this server's user, with its "
        "files and its network, under limits of time and memory only."
    )
