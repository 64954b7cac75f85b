"""The types of the sandbox API and the protocol of its providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nemo_gym.errors import NemoGymError

TIMED_OUT = "timeout"
"""`error_type` of a command that timed out."""
LOST = "sandbox"
"""`error_type` of a command whose sandbox is gone or failed."""
TIMED_OUT_CODE = 124
LOST_CODE = -1


class SandboxError(NemoGymError, RuntimeError):
    """A sandbox could not carry out a request."""


class SandboxCreateError(SandboxError):
    """A sandbox could not be created."""


class SandboxStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """The limits of one sandbox. The provider decides those that are None."""

    cpu: float | None = None
    """CPUs that it may keep busy."""
    memory_mib: int | None = None
    disk_gib: float | None = None
    gpu: int | None = None
    gpu_type: str | None = None
    pids: int | None = None
    """Processes at the same time."""

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_mib", "disk_gib", "pids"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"the resource {name} of a sandbox must be above 0, not {value}")


@dataclass(frozen=True)
class SandboxSpec:
    """The description of a sandbox to create. Mappings and sequences are copied."""

    image: str | None = None
    ttl_s: float | None = None
    """Seconds after which the sandbox is stopped in any case."""
    ready_timeout_s: float | None = None
    """Seconds that the start may take; None for the provider's default."""
    workdir: str | None = None
    """The working directory of commands, and the base of relative paths."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict, repr=False)
    """Files written at the start: the path in the sandbox → a text, bytes, or a local `Path` to copy."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    resources: SandboxResources = field(default_factory=SandboxResources)
    entrypoint: Sequence[str] | None = None
    """A command that runs in the background from the start."""
    provider_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options specific to the provider."""

    def __post_init__(self) -> None:
        for name in ("env", "files", "metadata", "provider_options"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        if not isinstance(self.resources, SandboxResources):
            object.__setattr__(self, "resources", SandboxResources(**(self.resources or {})))
        if self.entrypoint is not None:
            words = [self.entrypoint] if isinstance(self.entrypoint, str) else list(self.entrypoint)
            object.__setattr__(self, "entrypoint", words)
        for name in ("ttl_s", "ready_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} of a sandbox must be above 0 seconds, not {value}")


@dataclass(frozen=True)
class SandboxHandle:
    """A reference to a created sandbox. `raw` is for its provider."""

    sandbox_id: str
    provider_name: str = ""
    raw: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class SandboxExecResult:
    """The result of a command. Long outputs have their middle replaced by a note."""

    stdout: str | None = None
    stderr: str | None = None
    return_code: int = 0
    """The exit code as in a shell: 128 plus the signal's number if a signal ended the command."""
    error_type: str | None = None
    """"timeout", "sandbox" (the sandbox failed, not the command), or None."""


@dataclass(frozen=True)
class SandboxEndpoint:
    """The URL of a sandbox's port, and the headers to send with each request."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@runtime_checkable
class SandboxProvider(Protocol):
    """A provider of sandboxes. Methods raise `SandboxError` if they fail."""

    name: str

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Create a sandbox and wait until it is ready. Raise `SandboxCreateError` if that fails."""

    async def exec(
        self,
        handle: SandboxHandle,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command line in a shell, or a program with its arguments. At the timeout, kill its children too."""

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the sandbox, creating parent folders."""

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the sandbox to a local path, creating parent folders."""

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the status of the sandbox."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the URL of a port of the sandbox."""

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the sandbox and remove its files. Idempotent."""

    async def aclose(self) -> None:
        """Stop all sandboxes and release the provider's resources."""


def words_of(command: str | Sequence[str]) -> list[str]:
    """Return the program and arguments of a command. A command line runs in bash, or in sh if there is no bash."""
    if isinstance(command, str):
        return ["/bin/sh", "-c", _SHELL, "sh", command]
    words = [str(word) for word in command]
    if not words:
        raise ValueError("the command is empty: pass at least the name of a program")
    return words


_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
