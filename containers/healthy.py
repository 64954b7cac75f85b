"""Check a container's health: exit with 0 if each of the given URLs answers with status 200, else with 1."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

TIMEOUT_S = 4.0


def problem_of(url: str) -> str | None:
    """Return why a URL is not healthy, or None if it is."""
    try:
        # Loopback addresses need no proxy, even if the environment sets one.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=TIMEOUT_S):
            return None
    except (OSError, ValueError) as error:
        body = error.read(1_000).decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
        return f"{url}: {error} {body}".strip()


if __name__ == "__main__":
    problems = [problem for url in sys.argv[1:] if (problem := problem_of(url))]
    # The engine shows this output: `docker inspect --format '{{json .State.Health}}' CONTAINER`.
    print("\n".join(problems) or "healthy")  # noqa: T201
    sys.exit(bool(problems))
