"""The options of bubblewrap sandboxes, and the command that starts one."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.sandbox.confinement import supervisor
from nemo_gym.sandbox.confinement.bubblewrap import SCRATCH, Interpreter, parents_of, sandboxed
from nemo_gym.sandbox.providers.base import SandboxCreateError
from nemo_gym.sandbox.providers.bubblewrap.folders import WORKDIR, Home
from nemo_gym.sandbox.providers.commandline import DEFAULT_OUTPUT_BYTES

GIBIBYTE = 2**30
TAKEN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/dev", "/sys")
"""System folders. A workspace must not be in one of them."""
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")


class BubblewrapConfig(BaseModel):
    """Default options for sandboxes of the bubblewrap provider."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    memory_mib: int = Field(default=2048, gt=0)
    pids: int = Field(default=256, gt=0)
    scratch_mib: int = Field(default=256, gt=0)
    """The size of /tmp, /dev/shm and each folder in `scratch`. Their content counts as memory."""
    scratch: list[str] = Field(default_factory=list)
    """More folders like /tmp: they are empty at the start, and commands may write there. Example: /logs."""
    readable: list[str] = Field(default_factory=list)
    """Additional files and folders of this machine that sandboxes may read."""
    has_network: bool = False
    """Whether sandboxes share this machine's network; otherwise each has its own, isolated one."""
    workspaces: str | None = None
    """The folder for the workspaces; the system's temporary folder by default."""
    output_bytes: int = Field(default=DEFAULT_OUTPUT_BYTES, gt=0)
    """The maximum size of a command's output, per stream. The middle of a longer output is omitted."""
    allow_unconfined: bool = False
    """Whether to run commands even if this machine cannot confine them. Such commands have the file and
    network access of this process's user."""


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
    bwrap: str, home: Home, workdir: str, config: BubblewrapConfig, disk_gib: float | None
) -> list[str]:
    """Return the command that starts a sandbox's first process."""
    mounts: list[str] = []
    for name in ("passwd", "group"):
        mounts += ["--ro-bind", str(home.folder / name), f"/etc/{name}"]
    for path in ("/etc/alternatives", *(NETWORK_FILES if config.has_network else ())):
        mounts += ["--ro-bind-try", path, path]
    for path in config.readable:
        mounts += [*_parents(path), "--ro-bind", path, path]
    mounts += _parents(workdir)
    if disk_gib is None:
        mounts += ["--bind", str(home.workspace), workdir]
    else:
        mounts += ["--perms", "1777", "--size", str(int(disk_gib * GIBIBYTE)), "--tmpfs", workdir]
    return sandboxed(
        bwrap,
        supervisor.__file__,
        Interpreter.base(),
        scratch_mb=config.scratch_mib,
        scratch=config.scratch,
        mounts=mounts,
        has_network=config.has_network,
    )


def _parents(path: str) -> list[str]:
    """Return the options that create a path's parent folders. /tmp and /dev/shm already exist and stay writable."""
    return parents_of(path, without=SCRATCH)
