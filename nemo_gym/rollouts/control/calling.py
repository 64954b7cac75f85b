"""Send requests to a running collection through its socket."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import orjson

from nemo_gym.errors import UserError
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.control.control import Refused
from nemo_gym.rollouts.control.registry import Collection, address_of, collections_here

ANSWER_S = 10.0
"""Seconds to wait for an answer. Even a busy collection answers within a fraction of a second."""


class NotListening(UserError):
    """The error for a collection that does not exist or does not answer."""


class StartingOrEnding(NotListening):
    """The error for a collection whose servers are starting, or whose metrics are being computed."""


def find(name: str | None) -> Collection:
    """Return the collection that `name` refers to, or the only one if `name` is None.

    Raise `NotListening`, which lists the collections to choose from, if none or more than one matches.
    """
    running = collections_here()
    found = [each for each in running if name is None or each.matches(name)]
    # A name without a folder may be that of an output in another folder.
    found = found or [each for each in running if name in (each.output.name, each.output.stem)]
    if len(found) == 1:
        return found[0]
    if not running:
        raise NotListening(
            f"{name or 'ng eval'}: no collection is running on this machine for this user. Run this command "
            "where the collection runs, as the same user."
        )
    wanted = "is running" if name is None else f"matches '{name}'"
    problem = f"no collection {wanted}" if not found else f"more than one collection {wanted}"
    listed = ", ".join(f"{each.output} ({each.run_id})" for each in found or running)
    raise NotListening(f"{problem}. Name one by its output or id: {listed}.")


def ask(
    collection: Collection, verb: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float = ANSWER_S
) -> JsonObject:
    """Send one request and return the answer.

    Raise `StartingOrEnding` if the collection takes no requests now, `NotListening` if it does not answer in time, and
    `Refused` if it rejects the request.
    """
    request = orjson.dumps({"verb": verb, **(arguments or {})}, option=orjson.OPT_APPEND_NEWLINE)
    try:
        line = _exchange(collection.socket, request, timeout_s)
    except (TimeoutError, BlockingIOError) as error:
        # Connecting raises `BlockingIOError` if too many requests are already waiting.
        problem = f"process {collection.pid} did not answer within {timeout_s:g} s, but may still apply the request"
        raise NotListening(
            f"{collection.output}: {problem}. Check the collection with 'ng eval ctl {collection.output} status'."
        ) from error
    except OSError as error:
        problem = f"no rollouts are running, because process {collection.pid} is starting or ending"
        raise StartingOrEnding(f"{collection.output}: {problem}. Try again.") from error
    if not line.endswith(b"\n"):
        raise ended(collection)
    answer: JsonObject = orjson.loads(line)
    if "error" in answer:
        raise Refused(f"{collection.output}: {answer['error']}.")
    return answer


def ended(collection: Collection) -> NotListening:
    """Return the error for a collection that ended before it answered a request."""
    return NotListening(
        f"{collection.output}: process {collection.pid} ended before it answered. The run's record shows how it ended."
    )


def _exchange(path: Path, request: bytes, timeout_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        with address_of(path) as address:
            connection.connect(address)
        connection.sendall(request)
        with connection.makefile("rb") as replies:
            return replies.readline()


def ask_run(results: Path, verb: str, /, **arguments: object) -> JsonObject:
    """Send a request to the collection that writes to this output, and return the answer.

    Raise the same errors as `ask`, and `NotListening` if no collection writes to this output.
    """
    return ask(find(str(results)), verb, arguments)
