"""Show that a long preparation is still running: log a line every few seconds, unless a progress bar is shown."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 10.0
"""The minimum number of seconds between two log lines."""

logger = logging.getLogger(__name__)


class _Activity:
    """The state that decides when to log: the times of the last progress, and of the last progress that was shown."""

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
"""The activity of the whole process. A script and its downloads share it, so that they do not both log lines."""


def began() -> None:
    """Record that a download has begun. Delay its first log line, unless another download was just active."""
    _ACTIVITY.began()


def show(text: str) -> None:
    """Log a line, unless the last one is too recent. Log it as a warning, because commands show only warnings."""
    if _ACTIVITY.is_due():
        _ACTIVITY.saw()
        logger.warning("%s", text)


def seen() -> None:
    """Record that the user has just seen progress elsewhere, such as on a progress bar."""
    _ACTIVITY.saw()


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Log regularly that `what` is still running, until the block ends."""
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
