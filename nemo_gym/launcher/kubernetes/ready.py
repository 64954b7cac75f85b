"""Wait until all servers of a run answer: `python -m nemo_gym.launcher.kubernetes.ready URL SECONDS`."""

from __future__ import annotations

import json
import sys
import time

from nemo_gym.errors import ServerCallError
from nemo_gym.http.blocking import ask
from nemo_gym.text import visible

RETRY_S = 2.0
TIMEOUT_S = 10.0
OK = 200


def missing_servers(url: str) -> str | None:
    """Return a description of the servers for which a run still waits; None if all of them answer."""
    try:
        reply = ask("GET", f"{url}/readyz", timeout_s=TIMEOUT_S)
    except ServerCallError as error:
        return f"the head server does not answer ({error})"
    if reply.status == OK:
        return None
    try:
        missing: dict[str, str] = json.loads(reply.body)["missing"]
        return "; ".join(f"{name}: {problem}" for name, problem in missing.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the head server answers with status {reply.status}"


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
        print("usage: python -m nemo_gym.launcher.kubernetes.ready URL SECONDS", file=sys.stderr)  # noqa: T201
        return 2
    url, timeout_s = words[0].rstrip("/"), float(words[1])
    if (missing := wait_until_ready(url, timeout_s)) is None:
        return 0
    problem = f"The run at {url} was not ready after {timeout_s:g} s: {missing}. Look at the logs of these servers."
    print(visible(problem), file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
