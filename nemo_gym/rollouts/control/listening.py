"""Answer the requests on a collection's control socket: one JSON object per line."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from nemo_gym.config.explain import explained_in_a_line
from nemo_gym.jsonl import dump_json
from nemo_gym.rollouts.control.control import Control, Refused
from nemo_gym.rollouts.control.registry import Collection, address_of

logger = logging.getLogger(__name__)

Verb = Literal["status", "pause", "resume", "concurrency", "cancel", "requeue", "drain", "stop"]
VERBS: tuple[str, ...] = get_args(Verb)
"""The names of the methods of `Control` that carry out requests."""
_ARGUMENTS = {"concurrency": ("wanted",), "cancel": ("task", "repeat"), "requeue": ("task", "repeat")}
"""The arguments of each verb that has any."""

LONGEST_REQUEST = 64 * 1024
IDLE_S = 60.0
"""Seconds after which a connection is closed if its client neither sends a request nor reads an answer."""
MOST_CONNECTIONS = 128
"""The limit on open connections. Further ones are closed at once, because rollouts need the file descriptors."""


class Request(BaseModel):
    """A control request: a verb with its arguments."""

    model_config = ConfigDict(extra="forbid")

    verb: Verb
    task: NonNegativeInt | None = None
    """The task to cancel or to run again. If it is None, `requeue` runs all rollouts without a score again."""
    repeat: NonNegativeInt | None = None
    """The repeat of `task` to cancel or to run again. None means all repeats of the task."""
    wanted: int | None = Field(default=None, ge=1, le=1_000_000)
    """The new concurrency; None to adapt it to the measured throughput."""

    @model_validator(mode="after")
    def _has_its_arguments(self) -> Request:
        if self.verb == "cancel" and self.task is None:
            raise ValueError("cancel needs a task. Set `task` to the task's index")
        if self.repeat is not None and self.task is None:
            raise ValueError("a repeat needs a task. Set `task` to the task's index")
        return self

    @property
    def arguments(self) -> Mapping[str, object]:
        """The arguments that are not None. For `concurrency`, `wanted` is a number or `auto`."""
        given = self.model_dump(exclude={"verb"}, exclude_none=True)
        return {"wanted": self.wanted or "auto"} if self.verb == "concurrency" else given


@asynccontextmanager
async def listening(control: Control, collection: Collection | None) -> AsyncIterator[None]:
    """Answer requests on the collection's socket until the `with` block ends. Only this user may connect."""
    if collection is None:
        logger.warning("no private folder has a record of this collection, so 'ng eval ctl' cannot reach it")
        yield
        return
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(_answer_all(control, reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    try:
        bound = _bound(collection.socket)
    except OSError as error:
        logger.warning("%s: cannot be created (%s), so 'ng eval ctl' is not available", collection.socket, error)
        yield
        return
    server = await asyncio.start_unix_server(accept, sock=bound, limit=LONGEST_REQUEST)
    try:
        yield
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        collection.socket.unlink(missing_ok=True)


def _bound(path: Path) -> socket.socket:
    """Return a socket that is bound to this path. Only this user may connect to it."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(path) as address:
            bound.bind(address)
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    return bound


async def _answer_all(control: Control, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            # Do not use `wait_for`: in Python 3.11, it ignores a cancellation that arrives together with a line.
            async with asyncio.timeout(IDLE_S):
                if not (line := await reader.readline()):
                    break
                writer.write(dump_json(_answer(control, line)) + b"\n")
                await writer.drain()
        writer.close()
    except (TimeoutError, ValueError, OSError):
        # Close without an answer: the connection was idle, a line was too long, or the client has disconnected.
        pass
    finally:
        # Abort instead of closing, which would wait until the client has read its answers. A client that does not read
        # must not delay the end of the run.
        if not writer.is_closing():
            writer.transport.abort()


def _answer(control: Control, line: bytes) -> Mapping[str, object]:
    try:
        request = Request.model_validate_json(line)
    except ValidationError as error:
        return {"error": f"invalid request: {explained_in_a_line(error)}"}
    try:
        arguments = {name: getattr(request, name) for name in _ARGUMENTS.get(request.verb, ())}
        answer: Mapping[str, object] = getattr(control, request.verb)(**arguments)
    except Refused as error:
        answer = {"error": str(error)}
    if request.verb != "status":
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        control.record.note_control({"at": at, "verb": request.verb, **request.arguments, "answer": answer})
    return answer
