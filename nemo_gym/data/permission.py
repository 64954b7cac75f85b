"""A setting that forbids downloads, so that `fetch` may only use files that already exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nemo_gym.errors import DataError

_allowed = ContextVar("downloads_allowed", default=True)


class DownloadNeeded(DataError):
    """A file must be downloaded, but the command does not allow downloads."""


def downloads_allowed() -> bool:
    """Return whether files may be downloaded."""
    return _allowed.get()


@contextmanager
def may_download(is_allowed: bool) -> Iterator[None]:
    """Allow or forbid downloads until the block ends."""
    token = _allowed.set(is_allowed)
    try:
        yield
    finally:
        _allowed.reset(token)
