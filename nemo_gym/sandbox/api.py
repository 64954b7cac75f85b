"""The asynchronous sandbox: start it, run commands, copy files, stop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nemo_gym.sandbox.labels import labels
from nemo_gym.sandbox.providers.base import (
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.registry import create_provider

EXEC_TIMEOUT_S = 180.0

Provider = str | Mapping[str, object] | SandboxProvider
Spec = SandboxSpec | Mapping[str, Any] | None


class AsyncSandbox:
    """A sandbox made by a provider.

    `provider` is the provider's name, its config block (`{name: options}`), or a provider object. As a context
    manager, the sandbox starts and stops itself. A provider object that was passed in is not closed.
    """

    def __init__(self, provider: Provider, spec: Spec = None) -> None:
        self._closes_provider = isinstance(provider, str | Mapping)
        self.provider: SandboxProvider = create_provider(provider) if isinstance(provider, str | Mapping) else provider
        self.spec = _spec(spec)
        self.handle: SandboxHandle | None = None

    @property
    def sandbox_id(self) -> str | None:
        """The provider's id of the sandbox; None until it is started."""
        return self.handle.sandbox_id if self.handle else None

    async def start(self, spec: Spec = None) -> Self:
        """Create the sandbox and wait until it is ready. Do nothing if it is already started.

        Raise `SandboxCreateError` if it cannot be created.
        """
        if self.handle is None:
            self.spec = self.spec if spec is None else _spec(spec)
            labelled = replace(self.spec, metadata={**labels(), **self.spec.metadata})
            self.handle = await self.provider.create(labelled)
        return self

    async def exec(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = EXEC_TIMEOUT_S,
        user: str | int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a published name
    ) -> SandboxExecResult:
        """Run a command line in a shell, or a program with its arguments as a list.

        After `timeout_s` seconds (`timeout` is an alias) the command and its children are killed, and `error_type`
        is "timeout". Commands may run concurrently.
        """
        limit = timeout_s if timeout is None else timeout
        return await self.provider.exec(self._started(), command, cwd=cwd, env=env, timeout_s=limit, user=user)

    async def upload(self, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the sandbox. Raise `SandboxError` if that fails."""
        await self.provider.upload_file(self._started(), source_path, str(target_path))

    async def download(self, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the sandbox to a local path. Raise `SandboxError` if that fails."""
        await self.provider.download_file(self._started(), str(source_path), target_path)

    async def status(self) -> SandboxStatus:
        """Return the sandbox's status: stopped if it was never started."""
        return SandboxStatus.STOPPED if self.handle is None else await self.provider.status(self.handle)

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """Return the URL of a port of the sandbox. Raise `SandboxError` if it cannot be reached."""
        return await self.provider.endpoint(self._started(), port)

    async def stop(self) -> None:
        """Kill everything in the sandbox and remove it. Idempotent."""
        handle, self.handle = self.handle, None
        try:
            if handle is not None:
                await self.provider.close(handle)
        finally:
            if self._closes_provider:
                await self.provider.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _started(self) -> SandboxHandle:
        if self.handle is None:
            raise SandboxError("the sandbox is not running: call start(), or use it as `async with`.")
        return self.handle


def _spec(given: Spec) -> SandboxSpec:
    return given if isinstance(given, SandboxSpec) else SandboxSpec(**(given or {}))
