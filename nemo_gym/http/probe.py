"""The check that a model endpoint is up."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException


def endpoint_answers(url: str, timeout_s: float) -> bool:
    """Return whether `GET /models` of a base URL is answered, with any status. Block until the timeout at most."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/models", timeout=timeout_s):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError, HTTPException):
        return False
