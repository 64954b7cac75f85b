"""Workspaces as archives: a row may bring its files with their modes, and then gets all of them back like that."""

from __future__ import annotations

import base64
import io
import posixpath
import tarfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import AgentFailed, InvalidTask

PACKED = ".nemo_gym_task.tar.gz"
"""The archive in the workspace, until it is unpacked."""
UNPACK = 'tar -xpzf "$0" && rm -f "$0" && exec "$@"'

MOST = 10**8
"""Larger limits are mistakes, and their bytes or seconds may not fit into the numbers of the operating system."""
Name = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class TaskSandbox(BaseModel):
    """What a row's task asks of its sandbox. Values that are set override the config."""

    model_config = ConfigDict(extra="forbid")

    workdir: str | None = Field(default=None, pattern=r"^/[^\x00]*$")
    env: dict[Name, Text] = Field(default_factory=dict)
    """Environment variables of the sandbox. Those of the program override them."""
    cpu: float | None = Field(default=None, gt=0, le=MOST)
    memory_mib: int | None = Field(default=None, gt=0, le=MOST)
    disk_gib: float | None = Field(default=None, gt=0, le=MOST)
    timeout_s: float | None = Field(default=None, gt=0, le=MOST)
    """The maximum duration of the program."""


class TaskFiles(BaseModel):
    """The files and the sandbox that a row's task needs."""

    workspace_files: dict[str, str] = Field(default_factory=dict)
    """The text of each file, by its path in the workspace."""
    workspace_archive: str | None = None
    """A tar archive of the workspace, in gzip and base64. If a row has one, the result has one, too."""
    sandbox: TaskSandbox = Field(default_factory=TaskSandbox)


def unpacked(archive: str, own: Collection[str]) -> bytes:
    """Return a row's archive. Raise `InvalidTask` if it is malformed or has one of the agent's `own` files."""
    try:
        content = base64.b64decode(archive, validate=True)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as files:
            names = {posixpath.normpath(name) for name in files.getnames()}
    except (ValueError, tarfile.TarError, zlib.error, OSError, EOFError) as error:
        raise InvalidTask(f"workspace_archive is not a tar.gz archive in base64: {error}. Fix the row.") from error
    if both := sorted(names.intersection(own)):
        raise InvalidTask(
            f"workspace_archive has a file {both[0]}, which the agent writes itself. Set another prompt_file, or "
            "rename the program's file."
        )
    return content


def unpacking(command: Sequence[str]) -> list[str]:
    """Return the command that unpacks the archive in the workspace, and then runs a program."""
    return ["sh", "-c", UNPACK, PACKED, *command]


def packed(workspace: Path, own: Collection[str], most_bytes: int) -> str:
    """Return a workspace's tar archive in the form of `workspace_archive`, without the agent's `own` files.

    Raise `AgentFailed` if it has more than `most_bytes` before the encoding, because a part would be graded wrongly.
    """
    target = io.BytesIO()
    try:
        with tarfile.open(workspace) as old, tarfile.open(fileobj=target, mode="w:gz") as new:
            for member in old:
                if member.issparse():
                    raise tarfile.TarError("it has sparse files, which may be of any size")
                if posixpath.normpath(member.name) not in own:
                    new.addfile(member, old.extractfile(member) if member.isfile() else None)
                if target.tell() > most_bytes:
                    break
    except tarfile.TarError as error:
        raise AgentFailed(f"the files of the program could not be collected: {error}") from error
    if len(target.getbuffer()) > most_bytes:
        raise AgentFailed(
            f"the files of the program take more than {most_bytes} bytes when packed. Raise most_collected_kib."
        )
    return base64.b64encode(target.getbuffer()).decode()
