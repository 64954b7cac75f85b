"""The types of the sandbox API and the protocols of its providers."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from nemo_gym.errors import NemoGymError

TIMED_OUT = "timeout"
"""`error_type` of a command that timed out."""
LOST = "sandbox"
"""`error_type` of a command whose sandbox is gone or failed."""
TIMED_OUT_CODE = 124
LOST_CODE = -1
HIGHEST_PORT = 65_535


class SandboxError(NemoGymError, RuntimeError):
    """The error for a request that a sandbox could not carry out."""


class SandboxCreateError(SandboxError):
    """The error for a sandbox that could not be created."""


class SandboxCreateVerificationError(SandboxCreateError):
    """The error for a sandbox that was created, but whose readiness probe did not succeed."""


class SandboxStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """The limits of one sandbox. For a limit that is None, the provider's default applies."""

    cpu: float | None = None
    """The number of CPUs that the sandbox may keep busy."""
    memory_mib: int | None = None
    disk_gib: float | None = None
    gpu: int | None = None
    gpu_type: str | None = None
    pids: int | None = None
    """The maximum number of processes at the same time."""

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_mib", "disk_gib", "pids"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"the resource {name} of a sandbox must be above 0, not {value}")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any] | None) -> Self:
        """Convert a config block such as `{cpu: 2, memory_mib: "4096"}`. Raise `ValueError` for bad keys or values."""
        given = dict(mapping or {})
        names = [each.name for each in fields(cls)]
        if unknown := sorted(map(str, set(given) - set(names))):
            raise ValueError(
                f"sandbox resources: these keys are unknown: {', '.join(unknown)}. Use {', '.join(names)}."
            )
        return cls(**{name: None if value is None else _resource(name, value) for name, value in given.items()})


def _resource(name: str, value: Any) -> Any:
    if name == "gpu_type":
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"sandbox resources: {name} must be a number, not {value!r}.") from None
    return int(number) if name != "cpu" and number.is_integer() else number


def _port(port: Any) -> int:
    is_number = isinstance(port, int) and not isinstance(port, bool)
    number = int(port) if is_number or (isinstance(port, str) and port.isdecimal()) else 0
    if not 1 <= number <= HIGHEST_PORT:
        raise ValueError(f"ports of a sandbox are numbers from 1 to {HIGHEST_PORT}, not {port!r}")
    return number


@dataclass(frozen=True)
class SandboxSpec:
    """The description of a sandbox to create. Mappings and sequences are copied."""

    image: str | None = None
    ttl_s: float | None = None
    """Seconds after which the sandbox is stopped, even if it is in use."""
    ready_timeout_s: float | None = None
    """Seconds that the start may take; None for the provider's default."""
    workdir: str | None = None
    """The working directory of commands, and the base of relative paths."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict, repr=False)
    """Files to write after the start: each path in the sandbox maps to a string, bytes, or a local `Path` to copy."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    resources: SandboxResources = field(default_factory=SandboxResources)
    entrypoint: Sequence[str] | None = None
    """A command that runs in the background from the start."""
    provider_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options specific to the provider."""
    ports: Sequence[int] = ()
    """The ports for which `endpoint` returns a URL. They are stored as a tuple of ints."""

    def __post_init__(self) -> None:
        for name in ("env", "files", "metadata", "provider_options"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        if not isinstance(self.resources, SandboxResources):
            object.__setattr__(self, "resources", SandboxResources.from_mapping(self.resources))
        if not isinstance(self.ports, list | tuple):
            raise TypeError(f"ports of a sandbox must be a list or a tuple, not {self.ports!r}")
        ports = tuple(map(_port, self.ports))
        if len(set(ports)) < len(ports):
            raise ValueError(f"ports of a sandbox must be different, not {', '.join(map(str, ports))}")
        object.__setattr__(self, "ports", ports)
        if self.entrypoint is not None:
            words = [self.entrypoint] if isinstance(self.entrypoint, str) else list(self.entrypoint)
            object.__setattr__(self, "entrypoint", words)
        for name in ("ttl_s", "ready_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} of a sandbox must be above 0 seconds, not {value}")


@dataclass
class SandboxHandle:
    """A reference to a created sandbox. Only its provider uses `raw`."""

    sandbox_id: str
    provider_name: str = ""
    raw: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class SandboxExecResult:
    """The result of a command. In a long output, a note replaces the middle."""

    stdout: str | None = None
    stderr: str | None = None
    return_code: int = 0
    """The exit code as in a shell: 128 plus the signal's number if a signal ended the command."""
    error_type: str | None = None
    """"timeout", "sandbox" (the sandbox failed, not the command), or None."""


ExecResult = SandboxExecResult


@dataclass(frozen=True)
class SandboxEndpoint:
    """The absolute URL of a sandbox's port, and the headers to send with each request."""

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoint", self.endpoint.strip())
        parts = urlsplit(self.endpoint)
        if not parts.scheme or not parts.netloc:
            raise ValueError(f"the endpoint of a sandbox must be an absolute URL, not {self.endpoint!r}")
        if not isinstance(self.headers, Mapping):
            raise TypeError(f"the headers of a sandbox endpoint must be a mapping, not {self.headers!r}")
        object.__setattr__(self, "headers", {str(key): str(value) for key, value in self.headers.items()})


@runtime_checkable
class SandboxProvider(Protocol):
    """A provider of sandboxes. Methods raise `SandboxError` if they fail.

    `AsyncSandbox` itself writes a spec's `files` with `upload_file`, and passes the spec's `workdir` to `exec`.
    """

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
        """Run a command line in a shell, or a program with its arguments. At the timeout, kill it and its children."""

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the sandbox, creating parent folders."""

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file from the sandbox to a local path, creating parent folders."""

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the current status of the sandbox; `unknown` if it cannot be determined."""

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the sandbox and remove its files. Idempotent."""

    async def aclose(self) -> None:
        """Stop all sandboxes and release the provider's resources."""


@runtime_checkable
class SupportsSandboxEndpoint(Protocol):
    """A provider whose sandboxes can be reached over the network."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the URL of a port of the sandbox. Raise `SandboxError` if it cannot be reached."""


@runtime_checkable
class ConnectableProvider(Protocol):
    """A provider whose sandboxes other processes can use. Its methods may be synchronous or asynchronous."""

    def serialize_handle(
        self, handle: SandboxHandle, *, scope: Any = None
    ) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        """Return a JSON object for `connect`. The meaning of `scope` is specific to the provider."""

    def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle | Awaitable[SandboxHandle]:
        """Return a handle of the running sandbox that `serialize_handle` described."""


@runtime_checkable
class ListensInside(Protocol):
    """A provider that lets a sandbox's commands call services of this process, even without network access."""

    async def listen(self, handle: SandboxHandle, port: int) -> socket.socket:
        """Return a socket that listens on 127.0.0.1:`port` inside a sandbox; 0 chooses a free port."""


def words_of(command: str | Sequence[str], shell: str | None = None) -> list[str]:
    """Return a command's program and arguments.

    A command given as one string runs in `shell`. The default is bash, or sh if bash is not installed.
    """
    if isinstance(command, str):
        return [shell, "-c", command] if shell else ["/bin/sh", "-c", _SHELL, "sh", command]
    words = [str(word) for word in command]
    if not words:
        raise ValueError("the command is empty: pass at least the name of a program")
    return words


_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
