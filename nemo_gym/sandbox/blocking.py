"""The synchronous sandbox, with the same calls as the asynchronous one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nemo_gym.sandbox.api import EXEC_TIMEOUT_S, AsyncSandbox, Provider
from nemo_gym.sandbox.providers.base import SandboxEndpoint, SandboxExecResult, SandboxSpec, SandboxStatus

Result = TypeVar("Result")


class Sandbox:
    """An `AsyncSandbox` on an event loop in its own thread, so that it also works inside a running loop."""

    def __init__(self, provider: Provider, spec: SandboxSpec | Mapping[str, Any] | None = None) -> None:
        self._sandbox = AsyncSandbox(provider, spec)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def sandbox_id(self) -> str | None:
        """The provider's id of the sandbox; None until it is started."""
        return self._sandbox.sandbox_id

    def start(self, spec: SandboxSpec | Mapping[str, Any] | None = None) -> Self:
        """See `AsyncSandbox.start`."""
        try:
            self._waited(self._sandbox.start(spec))
        except BaseException:
            self.stop()
            raise
        return self

    def exec(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = EXEC_TIMEOUT_S,
        user: str | int | None = None,
        *,
        timeout: float | None = None,
    ) -> SandboxExecResult:
        """See `AsyncSandbox.exec`."""
        return self._waited(self._sandbox.exec(command, cwd, env, timeout_s, user, timeout=timeout))

    def upload(self, source_path: str | Path, target_path: str) -> None:
        """See `AsyncSandbox.upload`."""
        self._waited(self._sandbox.upload(source_path, target_path))

    def download(self, source_path: str, target_path: str | Path) -> None:
        """See `AsyncSandbox.download`."""
        self._waited(self._sandbox.download(source_path, target_path))

    def status(self) -> SandboxStatus:
        """See `AsyncSandbox.status`."""
        return self._waited(self._sandbox.status())

    def endpoint(self, port: int) -> SandboxEndpoint:
        """See `AsyncSandbox.endpoint`."""
        return self._waited(self._sandbox.endpoint(port))

    def stop(self) -> None:
        """See `AsyncSandbox.stop`. This also ends the thread."""
        if self._loop is None or self._thread is None:
            return
        try:
            self._waited(self._sandbox.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _waited(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A sandbox ends with the thread that started it, so all calls share one thread.
            self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
