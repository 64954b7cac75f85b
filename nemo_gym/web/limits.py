"""Limits on the load that a server accepts."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym.http.json_depth import DEEPEST_REQUEST

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class CallLimits:
    in_flight: int = 16_384
    """Maximum number of calls that are handled at the same time. Further calls wait."""
    queued: int = 16_384
    """Maximum number of waiting calls. Further calls are rejected with 503 and may be retried."""
    body_bytes: int = 256 * MEBIBYTE
    body_depth: int = DEEPEST_REQUEST
    """Maximum nesting depth of a JSON body. It is limited because parsers, validators and handlers recurse."""


def too_deep(most: int) -> str:
    return f"the request's body is nested more than {most} levels deep (max_request_depth)"


def too_large(most_bytes: int) -> str:
    return f"the request's body has more than {most_bytes} bytes (max_request_bytes)"
