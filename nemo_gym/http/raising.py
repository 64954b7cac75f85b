"""How calls raise their errors. Callers that were written for another HTTP client expect that client's classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from nemo_gym.errors import ServerCallError

ErrorT = TypeVar("ErrorT", bound=ServerCallError)


class Expected(Protocol):
    def __call__(self, error: ErrorT, method: str, url: str, headers: Mapping[str, str] | None) -> ErrorT: ...


def _unchanged(error: ErrorT, method: str, url: str, headers: Mapping[str, str] | None) -> ErrorT:
    return error


_used: list[Expected] = [_unchanged]


def as_expected(error: ErrorT, method: str = "", url: str = "", headers: Mapping[str, str] | None = None) -> ErrorT:
    """Return the error to raise for a failed call: `error` itself by default."""
    return _used[0](error, method, url, headers)


def use(replacement: Expected) -> None:
    """Replace the errors that calls of this process raise."""
    _used[0] = replacement
