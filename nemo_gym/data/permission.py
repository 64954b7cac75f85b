"""A setting that forbids downloads, so that `fetch` returns only files that already exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nemo_gym.errors import DataError

_allowed = ContextVar("downloads_allowed", default=True)


class DownloadNeeded(DataError):
    """The error for a missing file that this command is not allowed to download."""


def downloads_allowed() -> bool:
    return _allowed.get()


@contextmanager
def may_download(is_allowed: bool) -> Iterator[None]:
    """Allow or forbid downloads until the block ends."""
    token = _allowed.set(is_allowed)
    try:
        yield
    finally:
        _allowed.reset(token)
