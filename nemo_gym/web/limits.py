"""Limits on the load that a server accepts."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym.http.json_depth import DEEPEST_REQUEST, DEEPEST_ROW

MEBIBYTE = 1024 * 1024
AGGREGATION_PATH = "/aggregate_metrics"
AGGREGATION_LEVELS = 2
"""The nesting levels that a body of `/aggregate_metrics` has around each result."""
AGGREGATION_FACTOR = 8
"""How much larger a body of `/aggregate_metrics` may be, because it has the results of all rollouts of an agent."""


@dataclass(frozen=True)
class CallLimits:
    in_flight: int = 16_384
    """Maximum number of calls that are handled at the same time. Further calls wait."""
    queued: int = 16_384
    """Maximum number of waiting calls. Further calls are rejected with 503 and may be retried."""
    body_bytes: int = 256 * MEBIBYTE
    body_depth: int = DEEPEST_REQUEST
    """Maximum nesting depth of a JSON body. It is limited because parsers, validators and handlers recurse."""

    def bytes_at(self, path: str) -> int:
        """Return the maximum size of a body at a path."""
        return self.body_bytes * (AGGREGATION_FACTOR if path == AGGREGATION_PATH else 1)

    def depth_at(self, path: str) -> int:
        """Return the maximum nesting depth of a JSON body at a path. Any accepted result can be aggregated."""
        return max(self.body_depth, DEEPEST_ROW) + AGGREGATION_LEVELS if path == AGGREGATION_PATH else self.body_depth


def too_deep(most: int) -> str:
    return f"the request's body is nested more than {most} levels deep (max_request_depth)"


def too_large(most_bytes: int) -> str:
    return f"the request's body has more than {most_bytes} bytes (max_request_bytes)"
