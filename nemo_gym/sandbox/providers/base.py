"""What a sandbox is asked for and answers, and what a provider of sandboxes does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nemo_gym.errors import NemoGymError

TIMED_OUT = "timeout"
"""`error_type` of a command that was ended because its time was over."""
LOST = "sandbox"
"""`error_type` of a command whose sandbox is gone or failed: no fault of the command."""
TIMED_OUT_CODE = 124
LOST_CODE = -1


class SandboxError(NemoGymError, RuntimeError):
    """A sandbox cannot do what it was asked."""


class SandboxCreateError(SandboxError):
    """A sandbox could not be made; the message says what is missing."""


class SandboxStatus(StrEnum):
    """How a sandbox is."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """What one sandbox may use; what is None is left to the provider."""

    cpu: float | None = None
    """How many processors it may keep busy."""
    memory_mib: int | None = None
    disk_gib: float | None = None
    gpu: int | None = None
    gpu_type: str | None = None
    pids: int | None = None
    """How many processes there may be at a time."""

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_mib", "disk_gib", "pids"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"the resource {name} of a sandbox has to be above 0, not {value}")


@dataclass(frozen=True)
class SandboxSpec:
    """One sandbox as it is wanted. Where a mapping or a sequence is given, a copy is kept."""

    image: str | None = None
    ttl_s: float | None = None
    """It is stopped after so many seconds, whatever happens."""
    ready_timeout_s: float | None = None
    """How long its start may take; None for the provider's own."""
    workdir: str | None = None
    """Where commands run and relative paths begin."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict, repr=False)
    """Path in the sandbox → what is written there at its start: a text, bytes, or what a local `Path` holds."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    resources: SandboxResources = field(default_factory=SandboxResources)
    entrypoint: Sequence[str] | None = None
    """What runs in the background from the start on."""
    provider_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What only its provider understands."""

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
                raise ValueError(f"{name} of a sandbox has to be above 0 seconds, not {value}")


@dataclass(frozen=True)
class SandboxHandle:
    """A sandbox that was made; `raw` is its provider's own."""

    sandbox_id: str
    provider_name: str = ""
    raw: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class SandboxExecResult:
    """How a command ended. Long outputs lack their middle, and say so."""

    stdout: str | None = None
    stderr: str | None = None
    return_code: int = 0
    """As a shell has it: 128 and the signal's number where one ended it."""
    error_type: str | None = None
    """"timeout", "sandbox" (the sandbox failed, not the command), or None."""


@dataclass(frozen=True)
class SandboxEndpoint:
    """Where a port of a sandbox can be reached; `headers` go with each request."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@runtime_checkable
class SandboxProvider(Protocol):
    """Makes sandboxes and works in them. Methods raise `SandboxError` where they cannot."""

    name: str

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make a sandbox and wait until it is ready. Raises `SandboxCreateError`."""

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
        """Run a command line in a shell, or a program with its arguments; at the timeout all that it started ends."""

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the sandbox, making folders where needed."""

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the sandbox here, making folders where needed."""

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """How the sandbox is."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Where a port of the sandbox can be reached from here."""

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the sandbox and remove what it holds; once more does nothing."""

    async def aclose(self) -> None:
        """Stop all sandboxes and let go of what the provider holds."""


def words_of(command: str | Sequence[str]) -> list[str]:
    """The program and arguments of a command; a command line goes to bash, where there is none to sh."""
    if isinstance(command, str):
        return ["/bin/sh", "-c", _SHELL, "sh", command]
    words = [str(word) for word in command]
    if not words:
        raise ValueError("the command is empty: it needs at least the name of a program")
    return words


_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
