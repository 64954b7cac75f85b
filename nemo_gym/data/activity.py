"""Show that a long preparation is still at work: a line every few seconds, unless something else shows it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 10.0
"""Seconds between two lines."""

logger = logging.getLogger(__name__)


class _Activity:
    """When something last happened, and when the user last saw it."""

    at = seen_at = -math.inf

    def saw(self) -> None:
        self.at = self.seen_at = time.monotonic()

    def began(self) -> None:
        if time.monotonic() - self.at >= EVERY_S:
            self.saw()

    def is_due(self) -> bool:
        self.at = time.monotonic()
        return self.at - self.seen_at >= EVERY_S


_ACTIVITY = _Activity()
"""Shared by this process, because a script's downloads run below the frames of the code that reports on it."""


def began() -> None:
    """Note that a download has begun. Its first line is not due at once, unless it follows another one."""
    _ACTIVITY.began()


def show(text: str) -> None:
    """Log a line, unless the last one is too recent. A warning, because commands show only these."""
    if _ACTIVITY.is_due():
        _ACTIVITY.saw()
        logger.warning("%s", text)


def seen() -> None:
    """Note that the user has seen progress elsewhere, such as on a progress bar."""
    _ACTIVITY.saw()


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Show regularly that `what` is still running."""
    began_at, is_done = time.monotonic(), threading.Event()

    def tick() -> None:
        while not is_done.wait(EVERY_S / 2):
            show(f"{what} is still running ({time.monotonic() - began_at:.0f} s)")

    seen()
    ticker = threading.Thread(target=tick, name="activity", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        is_done.set()
        ticker.join()
