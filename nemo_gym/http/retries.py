"""Rules for retrying failed calls: how long to pause, and which failures of a model endpoint to retry."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from nemo_gym.errors import EndpointError

RATE_LIMIT_ERROR_CODES = [429, 502, 503, 504, 520]
RETRY_ERROR_CODES = [*RATE_LIMIT_ERROR_CODES, 500]
RETRIED = frozenset({408, 409, 425, 429, *range(500, 600)} - {501, 505})
"""All statuses that are retried. A server that lacks a feature (501, 505) would answer the same again."""
MAX_NUM_TRIES = 3


class Backoff(NamedTuple):
    """The parameters of an exponential backoff, with jitter so that callers do not all retry at the same time.

    Times are in seconds.
    """

    first_s: float
    factor: float
    longest_s: float

    def pause_s(self, failures: int, retry_after_s: float | None = None) -> float:
        """Return the pause after `failures` (at least 1) failed tries, randomly varied by up to 50%.

        The pause is at least `retry_after_s`, or `longest_s` if that is shorter.
        """
        growing = min(self.first_s * self.factor ** (failures - 1), self.longest_s)
        return max(growing * random.uniform(0.5, 1.5), min(retry_after_s or 0.0, self.longest_s))


ENDPOINT_BACKOFF = Backoff(first_s=0.5, factor=2, longest_s=30.0)


@dataclass(frozen=True)
class RetryPolicy:
    """The failures to retry, and the pauses between tries. Model calls have no side effects, so a retry is safe.

    Once a request has been sent, a lost connection or a timeout is final: the endpoint may still be working on it.
    """

    tries: int = MAX_NUM_TRIES
    backoff: Backoff = ENDPOINT_BACKOFF
    statuses: frozenset[int] = RETRIED

    def allows(self, failure: EndpointError) -> bool:
        return failure.status in self.statuses if failure.was_sent else True


def seconds_of_retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header (seconds or a date), or None if it is absent or invalid."""
    if value is None:
        return None
    with suppress(ValueError):
        seconds = float(value)
        return None if math.isnan(seconds) else max(0.0, seconds)
    # Suppress OverflowError too, which a date with a huge UTC offset raises.
    with suppress(ValueError, OverflowError):
        then = parsedate_to_datetime(value)
        return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return None


def pause_asked_for_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause in seconds that a reply asks for, or None. OpenAI and Azure also send `retry-after-ms`."""
    milliseconds = seconds_of_retry_after(headers.get("retry-after-ms"))
    return seconds_of_retry_after(headers.get("retry-after")) if milliseconds is None else milliseconds / 1000
