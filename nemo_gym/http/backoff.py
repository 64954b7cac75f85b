"""Exponential backoff between tries, with jitter so that callers do not all retry at the same time."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """The parameters of an exponential backoff with jitter. Times are in seconds."""

    first_s: float
    factor: float
    longest_s: float

    def pause_s(self, failures: int, retry_after_s: float | None = None) -> float:
        """Return the pause after `failures` (at least 1) failed tries, randomly varied by up to 50%.

        The pause is at least `retry_after_s`, or `longest_s` if that is shorter.
        """
        growing = min(self.first_s * self.factor ** (failures - 1), self.longest_s)
        return max(growing * random.uniform(0.5, 1.5), min(retry_after_s or 0.0, self.longest_s))
