"""The asynchronous sandbox: start it, run commands, copy files, stop it."""

from __future__ import annotations

import inspect
import os
import socket
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox.providers.base import (
    HIGHEST_PORT,
    ConnectableProvider,
    ListensInside,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
)
from nemo_gym.sandbox.providers.registry import create_provider

EXEC_TIMEOUT_S = 180.0

Provider = str | Mapping[str, object] | SandboxProvider
Spec = SandboxSpec | Mapping[str, Any] | None
Result = TypeVar("Result")

_LABELS = {
    "team": "NEMO_GYM_TEAM",
    "user": "NEMO_GYM_USER",
    "workload": "NEMO_GYM_WORKLOAD",
    "run_id": "NEMO_GYM_RUN_ID",
    "slurm_job_id": "SLURM_JOB_ID",
    "slurm_job_name": "SLURM_JOB_NAME",
    "slurm_job_user": "SLURM_JOB_USER",
}


class AsyncSandbox:
    """A sandbox made by a provider.

    `provider` is the provider's name, its config block (`{name: options}`), or a provider object. As a context
    manager, the sandbox starts on entry if it has a spec, and stops on exit. A provider object that the caller passed
    is not closed.
    """

    def __init__(self, provider: Provider, spec: Spec = None) -> None:
        self._closes_provider = isinstance(provider, str | Mapping)
        self.provider: SandboxProvider = create_provider(provider) if isinstance(provider, str | Mapping) else provider
        self.spec = _spec(spec)
        # Keep this name, because server folders read the attribute `_handle`.
        self._handle: SandboxHandle | None = None
        self._is_stopped = False

    @classmethod
    async def connect(cls, descriptor: Mapping[str, Any], *, provider: Provider) -> Self:
        """Return the running sandbox that `serialize` described. Another process may have called `serialize`.

        `stop` removes the sandbox for all processes that use it. Raise `SandboxError` if the sandbox is gone.
        """
        if not isinstance(descriptor, Mapping):
            raise TypeError(f"connect() needs the mapping that serialize() returned, not {descriptor!r}")
        spec = SandboxSpec(workdir=descriptor.get("workdir"), ports=descriptor.get("ports") or ())
        sandbox = cls(provider, spec)
        try:
            sandbox._handle = await _settled(sandbox._connectable().connect(descriptor))
        except BaseException:
            await sandbox.stop()
            raise
        return sandbox

    @property
    def sandbox_id(self) -> str | None:
        """The provider's id of the sandbox; None before `start` and after `stop`."""
        return self._handle.sandbox_id if self._handle else None

    async def start(self, spec: Spec = None) -> Self:
        """Create the sandbox, wait until it is ready, and write its files. Do nothing if it is already started.

        If any of these steps fails, stop the sandbox and raise `SandboxCreateError`.
        """
        wanted = self.spec if spec is None else _spec(spec)
        if wanted is None:
            raise ValueError("the sandbox needs a spec: pass a SandboxSpec to start(), or to the constructor.")
        if self._is_stopped:
            raise SandboxError("the sandbox was stopped and cannot start again: create another one.")
        if self._handle is not None:
            if wanted != self.spec:
                raise SandboxError("the sandbox is already started with another spec: create another sandbox.")
            return self
        self.spec = wanted
        try:
            labelled = replace(wanted, metadata={**labels(), **wanted.metadata})
            self._handle = await self.provider.create(labelled)
            await self._write_files(self._handle, wanted)
        except BaseException:
            await self.stop()
            raise
        return self

    async def exec(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = EXEC_TIMEOUT_S,
        user: str | int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - part of the interface
    ) -> SandboxExecResult:
        """Run a command line in a shell, or a program with its arguments as a list.

        The default of `cwd` is the spec's `workdir`. After `timeout_s` seconds (`timeout` is an alias) the command and
        its children are killed, and `error_type` is "timeout". Commands may run concurrently.
        """
        limit = timeout_s if timeout is None else timeout
        folder = self.spec.workdir if cwd is None and self.spec is not None else cwd
        return await self.provider.exec(self._started(), command, cwd=folder, env=env, timeout_s=limit, user=user)

    async def upload(self, local_path: str | Path, remote_path: str) -> None:
        """Copy a local file into the sandbox. Raise `SandboxError` if that fails."""
        await self.provider.upload_file(self._started(), local_path, str(remote_path))

    async def download(self, remote_path: str, local_path: str | Path) -> None:
        """Copy a file of the sandbox to a local path. Raise `SandboxError` if that fails."""
        await self.provider.download_file(self._started(), str(remote_path), local_path)

    async def status(self) -> SandboxStatus:
        """Return the sandbox's status. It is "unknown" before `start` and "stopped" after `stop`."""
        if self._handle is not None:
            return await self.provider.status(self._handle)
        return SandboxStatus.STOPPED if self._is_stopped else SandboxStatus.UNKNOWN

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """Return the URL of one of the spec's `ports`. Raise `SandboxError` if it cannot be reached."""
        declared = self.spec.ports if self.spec is not None else ()
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= HIGHEST_PORT:
            raise ValueError(f"a port is a number from 1 to {HIGHEST_PORT}, not {port!r}")
        if port not in declared:
            known = ", ".join(map(str, declared)) or "none"
            raise ValueError(f"port {port} is not among the `ports` of the SandboxSpec ({known}): add it there.")
        if not isinstance(self.provider, SupportsSandboxEndpoint):
            raise NotImplementedError(
                f"the sandbox provider '{self._provider_name}' does not have the method `endpoint`. Choose a provider "
                "that has it."
            )
        return await self.provider.endpoint(self._started(), port)

    async def serialize(self, *, scope: Any = None) -> JsonObject:
        """Return a JSON object with which another process can `connect` to this sandbox.

        `scope` is passed to the provider. Raise `NotImplementedError` if the provider's sandboxes cannot be shared.
        """
        handle = self._started()
        descriptor = dict(await _settled(self._connectable().serialize_handle(handle, scope=scope)))
        if self.spec is not None:
            descriptor["workdir"] = descriptor.get("workdir") or self.spec.workdir
            if self.spec.ports:
                descriptor.setdefault("ports", list(self.spec.ports))
        return descriptor

    async def listen(self, port: int = 0) -> socket.socket | None:
        """Return a socket that listens on 127.0.0.1 inside the sandbox, for a service that its commands may call.

        Port 0 chooses a free port. Return None if the provider cannot listen inside its sandboxes.
        """
        if not isinstance(self.provider, ListensInside):
            return None
        return await self.provider.listen(self._started(), port)

    async def stop(self) -> None:
        """Kill everything in the sandbox and remove it. Idempotent."""
        self._is_stopped = True
        handle, self._handle = self._handle, None
        try:
            if handle is not None:
                await self.provider.close(handle)
        finally:
            if self._closes_provider:
                await self.provider.aclose()

    async def __aenter__(self) -> Self:
        return self if self.spec is None else await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _write_files(self, handle: SandboxHandle, spec: SandboxSpec) -> None:
        for path, content in spec.files.items():
            try:
                if isinstance(content, Path):
                    await self.provider.upload_file(handle, content, path)
                    continue
                with tempfile.NamedTemporaryFile(prefix="nemo_gym-file-") as file:
                    file.write(content.encode() if isinstance(content, str) else content)
                    file.flush()
                    await self.provider.upload_file(handle, Path(file.name), path)
            except SandboxError as error:
                raise SandboxCreateError(f"{path} could not be written in the sandbox: {error}") from error

    def _connectable(self) -> ConnectableProvider:
        if isinstance(self.provider, ConnectableProvider):
            return self.provider
        # Raise NotImplementedError, because it is a RuntimeError, which server folders expect.
        raise NotImplementedError(
            f"sandboxes of the provider '{self._provider_name}' can only be used by the process that started them. "
            "To share sandboxes, choose another provider."
        )

    @property
    def _provider_name(self) -> str:
        return str(getattr(self.provider, "name", type(self.provider).__name__))

    def _started(self) -> SandboxHandle:
        if self._handle is None:
            raise SandboxError("the sandbox is not running: call start() first.")
        return self._handle


async def _settled(answer: Result | Awaitable[Result]) -> Result:
    return await answer if inspect.isawaitable(answer) else answer


def _spec(given: Spec) -> SandboxSpec | None:
    return SandboxSpec(**given) if isinstance(given, Mapping) else given


def labels() -> dict[str, str]:
    """Return the labels whose environment variable is set and not empty."""
    return {label: value for label, name in _LABELS.items() if (value := os.environ.get(name))}
