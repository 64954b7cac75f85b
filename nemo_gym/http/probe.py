"""Whether a model endpoint is there: it answers, whatever it answers."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException


def endpoint_answers(url: str, timeout_s: float) -> bool:
    """Ask for the models behind a base URL; blocks for as long as the timeout at most."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/models", timeout=timeout_s):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError, HTTPException):
        return False
