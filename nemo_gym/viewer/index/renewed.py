"""A value that is computed again when its state changes, but not all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")
REST = 5.0
"""After a computation, wait so many times as long before the next one, because a growing run changes constantly."""


class Renewed(Generic[V]):
    """The latest value of a slow computation. Thread-safe; two threads never compute it at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: object = None
        self._value: V | None = None
        self._rests_until = 0.0

    def of(self, state: object, compute: Callable[[], V]) -> V:
        """Return the value for a state, or a slightly older one."""
        with self._lock:
            if self._value is None or (state != self._state and time.monotonic() >= self._rests_until):
                began_at = time.monotonic()
                self._value, self._state = compute(), state
                ended_at = time.monotonic()
                self._rests_until = ended_at + REST * (ended_at - began_at)
            return self._value
