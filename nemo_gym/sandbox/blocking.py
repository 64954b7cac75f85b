"""The synchronous sandbox, with the same calls as the asynchronous one."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from nemo_gym.sandbox.api import AsyncSandbox, Provider, Spec

P = ParamSpec("P")
Result = TypeVar("Result")


def _blocking(
    method: Callable[Concatenate[AsyncSandbox, P], Coroutine[object, None, Result]],
) -> Callable[Concatenate[Sandbox, P], Result]:
    @functools.wraps(method)
    def blocking(self: Sandbox, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._waited(method(self._sandbox, *args, **kwargs))

    return blocking


class Sandbox:
    """An `AsyncSandbox` with blocking methods. It runs its event loop in a thread, so it also works in async code."""

    def __init__(self, provider: Provider, spec: Spec = None) -> None:
        self._sandbox = AsyncSandbox(provider, spec)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def sandbox_id(self) -> str | None:
        return self._sandbox.sandbox_id

    def start(self, spec: Spec = None) -> Self:
        try:
            self._waited(self._sandbox.start(spec))
        except BaseException:
            self.stop()
            raise
        return self

    exec = _blocking(AsyncSandbox.exec)
    upload = _blocking(AsyncSandbox.upload)
    download = _blocking(AsyncSandbox.download)
    status = _blocking(AsyncSandbox.status)
    endpoint = _blocking(AsyncSandbox.endpoint)
    serialize = _blocking(AsyncSandbox.serialize)

    def stop(self) -> None:
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
        return self if self._sandbox.spec is None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _waited(self, work: Coroutine[object, None, Result]) -> Result:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # Make all calls in one thread, because a sandbox may end when the thread that started it ends.
            self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
