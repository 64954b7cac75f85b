"""The files of a program: those that its task provides, and those that the program leaves."""

from __future__ import annotations

import posixpath
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from nemo_gym.errors import AgentFailed
from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxStatus

PACK_S = 120.0
NOTHING_THERE = 3
CHANGED_MEANWHILE = 1
"""The exit code of tar if a file changed while it was packed."""
PACK = (
    'n=$#; for path in "$@"; do [ ! -e "$path" ] || set -- "$@" "$path"; done; shift $n; '
    f"[ $# -gt 0 ] || exit {NOTHING_THERE}; "
    'for to in /tmp/.nemo_gym_workspace.tar ./.nemo_gym_workspace.tar; do tar -cf "$to" -- "$@"; code=$?; '
    f'[ $code -gt {CHANGED_MEANWHILE} ] || break; rm -f "$to"; done; echo "$to"; exit $code'
)
"""A shell script that packs the given paths, if they exist, into a tar archive, and prints the archive's path.

If /tmp does not have room for the archive, the archive is in the workspace. Tar leaves out the archive itself.
"""
MOST_FILES = 1_000

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Collected(BaseModel):
    """The files that a program left in its workspace, as they are passed to the verifier."""

    files: dict[str, str] = {}
    """The text of each file, by its path in the workspace."""
    omitted: dict[str, str] = {}
    """The files that are not in `files`: their paths in the workspace, each with the reason."""


class Limits(NamedTuple):
    """The maximum size in bytes of each collected file, and of all collected files together."""

    file_bytes: int
    total_bytes: int


class Workspace:
    """The folder of one program in its sandbox."""

    def __init__(self, sandbox: AsyncSandbox, collects: Sequence[str], limits: Limits) -> None:
        self._sandbox = sandbox
        self._collects = list(collects)
        self._limits = limits

    async def write(self, path: str, content: bytes) -> None:
        """Write a file to a path that is relative to the workspace. Raise `SandboxError` if that fails."""
        with tempfile.NamedTemporaryFile(prefix="nemo_gym-file-") as file:
            file.write(content)
            file.flush()
            await self._sandbox.upload(file.name, path)

    async def is_there(self) -> bool:
        """Return whether the sandbox is still running."""
        return await self._sandbox.status() is SandboxStatus.RUNNING

    async def collect(self, keep_at: Path | None = None) -> Collected:
        """Read the files that the program left at the paths to collect.

        If `keep_at` is set, also save the whole workspace to this path as a tar archive. Raise `AgentFailed` if the
        sandbox is gone, or if the archive cannot be saved.
        """
        with tempfile.TemporaryDirectory(prefix="nemo_gym-collected-") as folder:
            archive = Path(folder, "workspace.tar")
            if not await self._download(self._collects if keep_at is None else ["."], archive):
                return Collected()
            if keep_at is not None:
                _save(archive, keep_at)
            try:
                return _read(archive, self._collects, self._limits)
            except tarfile.TarError as error:
                raise AgentFailed(f"the files of the program could not be collected: {error}") from error

    async def _download(self, paths: Sequence[str], archive: Path) -> bool:
        try:
            packed = await self._sandbox.exec(["sh", "-c", PACK, "pack", *paths], timeout_s=PACK_S)
            if packed.return_code == NOTHING_THERE:
                return False
            if packed.return_code not in (0, CHANGED_MEANWHILE):
                raise AgentFailed(f"the files of the program could not be collected: {packed.stderr}")
            await self._sandbox.download((packed.stdout or "").strip(), archive)
        except SandboxError as error:
            raise AgentFailed(f"the files of the program could not be collected: {error}") from error
        return True


def _save(archive: Path, to: Path) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(archive, to)
    except OSError as error:
        raise AgentFailed(
            f"the workspace cannot be saved as {to} ({error.strerror}). Set workspaces_dir to a folder that can be "
            "written to, or keep_workspaces: never."
        ) from error


def _read(archive: Path, collects: Sequence[str], limits: Limits) -> Collected:
    collected, left = Collected(), limits.total_bytes
    with tarfile.open(archive) as files:
        for member in files:
            name = posixpath.normpath(member.name)
            if member.isdir() or not _is_within(name, collects):
                continue
            if len(collected.files) + len(collected.omitted) == MOST_FILES:
                collected.omitted["…"] = f"there are more than {MOST_FILES} files"
                break
            if not member.isfile():
                collected.omitted[name] = "it is not a regular file"
            elif member.size > min(limits.file_bytes, left):
                collected.omitted[name] = f"it has {member.size} bytes"
            else:
                reader = files.extractfile(member)
                assert reader is not None, "a regular file can be read"
                try:
                    collected.files[name] = reader.read().decode()
                    left -= member.size
                except UnicodeDecodeError:
                    collected.omitted[name] = "it is not text"
    return collected


def _is_within(name: str, collects: Sequence[str]) -> bool:
    wanted = [posixpath.normpath(each) for each in collects]
    return any(each in (".", name) or name.startswith(f"{each}/") for each in wanted)


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Replace `{name}` with its value for the given names only, because files of programs contain other braces.

    Values stay as they are, because the text of a task may contain braces, too.
    """
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)
