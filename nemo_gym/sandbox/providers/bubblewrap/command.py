"""The command that starts a sandbox, with the files of this machine that are visible in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from nemo_gym.confinement.bubblewrap import SCRATCH, Interpreter, parents_of, sandboxed
from nemo_gym.sandbox.providers.base import SandboxCreateError
from nemo_gym.sandbox.providers.bubblewrap import supervisor
from nemo_gym.sandbox.providers.bubblewrap.folders import WORKDIR, Home

GIBIBYTE = 2**30
TAKEN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/dev", "/sys")
"""System folders, which cannot contain a workspace."""
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")


class Place(NamedTuple):
    """The working directory, and the folders to and from which files may be copied."""

    workdir: str
    roots: list[str]


def checked_workdir(workdir: str | None) -> str:
    """Return the normalized path of the workspace in the sandbox. Raise `SandboxCreateError` if it is not allowed."""
    path = os.path.normpath(workdir or WORKDIR)
    if not path.startswith("/") or path == "/" or any(PurePosixPath(path).is_relative_to(taken) for taken in TAKEN):
        raise SandboxCreateError(
            f"the workdir of a bubblewrap sandbox cannot be {workdir}: use an absolute path outside the system "
            f"folders ({', '.join(TAKEN)}), such as {WORKDIR}."
        )
    return path


def confined_command(
    bwrap: str,
    home: Home,
    workdir: str,
    *,
    scratch_mib: int,
    disk_gib: float | None,
    readable: Sequence[str],
    has_network: bool,
) -> list[str]:
    """Return the command that starts a sandbox's first process."""
    mounts: list[str] = []
    for name in ("passwd", "group"):
        mounts += ["--ro-bind", str(home.folder / name), f"/etc/{name}"]
    for path in ("/etc/alternatives", *(NETWORK_FILES if has_network else ())):
        mounts += ["--ro-bind-try", path, path]
    for path in readable:
        mounts += [*_parents(path), "--ro-bind", path, path]
    mounts += _parents(workdir)
    if disk_gib is None:
        mounts += ["--bind", str(home.workspace), workdir]
    else:
        mounts += ["--perms", "1777", "--size", str(int(disk_gib * GIBIBYTE)), "--tmpfs", workdir]
    python = Interpreter.base()
    return sandboxed(
        bwrap, str(supervisor.__file__), python, scratch_mb=scratch_mib, mounts=mounts, has_network=has_network
    )


def _parents(path: str) -> list[str]:
    return [] if path.startswith(tuple(f"{folder}/" for folder in SCRATCH)) else parents_of(path)


def confined_place(workdir: str) -> Place:
    return Place(workdir, [workdir, *SCRATCH])
