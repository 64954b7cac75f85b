"""Pauses between tries that grow and never fall into step with those of other callers."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """Exponential backoff with jitter, in seconds."""

    first_s: float
    factor: float
    longest_s: float

    def pause_s(self, failures: int, retry_after_s: float | None = None) -> float:
        """Return the pause after so many failed tries (from 1), jittered by half.

        The server's own `Retry-After` is the least, but never more than `longest_s`.
        """
        growing = min(self.first_s * self.factor ** (failures - 1), self.longest_s)
        return max(growing * random.uniform(0.5, 1.5), min(retry_after_s or 0.0, self.longest_s))
