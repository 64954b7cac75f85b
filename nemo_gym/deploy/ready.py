"""Wait until all servers of a run answer: `python -m nemo_gym.deploy.ready URL SECONDS`."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPException

from nemo_gym.text import visible

RETRY_S = 2.0
TIMEOUT_S = 10.0


def missing_servers(url: str) -> str | None:
    """Return a description of the servers for which a run still waits; None if all of them answer."""
    try:
        # Ignore the environment's proxy settings, because the run is in the same network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/readyz", timeout=TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        try:
            missing: dict[str, str] = json.loads(error.read())["missing"]
            return "; ".join(f"{name}: {problem}" for name, problem in missing.items())
        except (ValueError, KeyError, TypeError, AttributeError, OSError, HTTPException):
            return f"the head server answers with status {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        return f"the head server does not answer ({error})"


def wait_until_ready(url: str, timeout_s: float) -> str | None:
    """Wait until the run at this URL is ready, and return None. After the timeout, describe the missing servers."""
    deadline, noted = time.monotonic() + timeout_s, ""
    while (missing := missing_servers(url)) is not None:
        if time.monotonic() >= deadline:
            return missing
        if missing != noted:
            print(visible(f"waiting for the run at {url}: {missing}"), file=sys.stderr, flush=True)  # noqa: T201
            noted = missing
        time.sleep(RETRY_S)
    return None


def main(words: list[str]) -> int:
    """Run the command. Return 0 if the run is ready, 1 after the timeout, and 2 if the arguments are invalid."""
    if len(words) != 2 or not words[1].replace(".", "", 1).isdigit():
        print("usage: python -m nemo_gym.deploy.ready URL SECONDS", file=sys.stderr)  # noqa: T201
        return 2
    url, timeout_s = words[0].rstrip("/"), float(words[1])
    if (missing := wait_until_ready(url, timeout_s)) is None:
        return 0
    problem = f"The run at {url} was not ready after {timeout_s:g} s: {missing}. Look at the logs of these servers."
    print(visible(problem), file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
