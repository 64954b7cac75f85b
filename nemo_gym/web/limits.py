"""Limits on the load that a server accepts."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym.http.json_depth import DEEPEST_REQUEST, DEEPEST_ROW
from nemo_gym.schemas.rollout import GROUP_PATH

MEBIBYTE = 1024 * 1024
PATHS_OF_SEVERAL = ("/aggregate_metrics", GROUP_PATH)
"""Routes whose body has several rollouts: those of an agent, or those of a task."""
LEVELS_OF_SEVERAL = 2
"""The nesting levels that such a body has around each rollout."""
FACTOR_OF_SEVERAL = 8
"""How much larger such a body may be."""


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
        return self.body_bytes * (FACTOR_OF_SEVERAL if path in PATHS_OF_SEVERAL else 1)

    def depth_at(self, path: str) -> int:
        """Return the maximum nesting depth of a JSON body at a path. Any accepted result may be one of several."""
        return max(self.body_depth, DEEPEST_ROW) + LEVELS_OF_SEVERAL if path in PATHS_OF_SEVERAL else self.body_depth


def too_deep(most: int) -> str:
    return f"the request's body is nested more than {most} levels deep (max_request_depth)"


def too_large(most_bytes: int) -> str:
    return f"the request's body has more than {most_bytes} bytes (max_request_bytes)"
