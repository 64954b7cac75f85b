"""A cached value that is computed again when the state that it depends on changes, but not too often."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")
REST = 5.0
"""The pause after a computation, as a multiple of its duration. It limits the load that a growing run causes."""


class Renewed(Generic[V]):
    """The latest value of a slow computation. Thread-safe: only one thread at a time computes the value."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: object = None
        self._value: V | None = None
        self._rests_until = 0.0

    def of(self, state: object, compute: Callable[[], V]) -> V:
        """Return the value for `state`. During the pause after a computation, return the last computed value."""
        with self._lock:
            if self._value is None or (state != self._state and time.monotonic() >= self._rests_until):
                began_at = time.monotonic()
                self._value, self._state = compute(), state
                ended_at = time.monotonic()
                self._rests_until = ended_at + REST * (ended_at - began_at)
            return self._value
