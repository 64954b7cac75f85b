"""Routes about running collections: a stream of a run's status, and control requests such as `pause`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Protocol

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import StreamingResponse

from nemo_gym.calls.loads import LoadReader, ServerLoad
from nemo_gym.config.models import HeadConfig
from nemo_gym.errors import LaunchError, UserError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.rollouts.control import listening
from nemo_gym.rollouts.control.calling import NotListening, StartingOrEnding
from nemo_gym.rollouts.control.control import Refused
from nemo_gym.viewer.routes_runs import Viewed, run_of
from nemo_gym.viewer.run_view import RunView

PAUSE_S = 1.0
LOADS_S = 4.0
"""Seconds to wait for the servers' load reports. After that, the page gets the previous reports again. The head server
itself waits two seconds for a server that hangs."""
RATE_OVER_S = 10.0
INDEXING_S = 1.0
"""The maximum time to wait for the indexing of appended lines, in seconds."""
MOST_STREAMS = 32

router = APIRouter()


class Control(Protocol):
    """A function that sends a request to the collection of `results`. It raises `NotListening` or `Refused`."""

    def __call__(self, results: Path, verb: str, /, **arguments: object) -> JsonObject: ...


class Streams:
    """The open event streams. They end when the server stops."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(MOST_STREAMS)
        """A place for each stream."""
        self.closing = asyncio.Event()
        """Ends all streams when it is set. This must happen in the server's event loop."""

    async def pause(self) -> None:
        """Wait until the next event is due, or until the streams must end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), PAUSE_S)


class ControlRequest(listening.Request):
    """A control request for the collection of one run."""

    run: str


@router.post("/api/control")
def ask(request: Request, body: ControlRequest) -> JsonObject:
    """Pass a control request to the collection of a run."""
    control: Control = request.app.state.control
    arguments = body.model_dump(exclude={"run", "verb"}, exclude_none=True)
    try:
        return control(run_of(request, body.run).files.results, body.verb, **arguments)
    except UserError as error:
        raise HTTPException(409, str(error)) from error


@router.get("/api/events")
async def events(request: Request, run: Viewed) -> StreamingResponse:
    """Send the status of a run every second until the run ends."""
    streams: Streams = request.app.state.streams
    if streams.places.locked():
        raise HTTPException(409, f"{MOST_STREAMS} live pages are open already: close one, then reload this page.")
    return StreamingResponse(_events(run, request.app.state.control, streams), media_type="text/event-stream")


async def _events(view: RunView, control: Control, streams: Streams) -> AsyncIterator[bytes]:
    async with streams.places, AsyncExitStack() as until_the_end:
        servers = _Servers(until_the_end)
        files = _Files(view)
        has_answered = False
        while not streams.closing.is_set():
            try:
                status = await asyncio.to_thread(control, view.files.results, "status")
                status["servers"] = await servers.read(status.get("head_server"))
                has_answered = True
            except (NotListening, Refused) as error:
                run = await asyncio.to_thread(_refreshed, view)
                if run["state"] != "running":
                    yield _event("ended", run)
                    return
                status = files.status(run)
                if isinstance(error, StartingOrEnding):
                    # Only what is left to do, or an earlier answer, shows which of the two it is.
                    status["state"] = "ending" if has_answered or not status["unresolved"] else "starting"
            yield _event("status", status)
            await streams.pause()


class _Servers:
    """The latest loads of a run's servers, as reported by the run's head server."""

    def __init__(self, until_the_end: AsyncExitStack) -> None:
        self._until_the_end = until_the_end
        self._reader: LoadReader | None = None
        self._latest: list[ServerLoad] = []

    async def read(self, head_server: str | None) -> list[Mapping[str, object]]:
        """Return the latest loads, or an empty list if there is no head server or the head server does not answer."""
        if head_server is None:
            return []
        if self._reader is None:
            host, _, port = head_server.rpartition(":")
            reader = LoadReader(HeadConfig(host=host.strip("[]"), port=int(port)))
            self._reader = await self._until_the_end.enter_async_context(reader)
        try:
            async with asyncio.timeout(LOADS_S):
                self._latest = await self._reader.read()
        except TimeoutError:
            pass
        except LaunchError:
            # Ignore this error, because the servers stop shortly before the collection ends.
            self._latest = []
        return [load.model_dump() for load in self._latest]


class _Files:
    """The status of a run, read from its files.

    Used if the run's collection does not answer, for example because it runs on another machine.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._samples: deque[tuple[float, int]] = deque()

    def status(self, run: JsonObject) -> JsonObject:
        """Return the fields of `LiveStatus`. Fields that only the collection can report are null or empty."""
        record = self._view.record
        failed = record.outcomes.failed if record else {}
        if sum(failed.values()) != run["failed"]:
            # The record may be a few seconds older than the files. If the numbers of failures differ, show the number
            # from the files, without causes.
            failed = {"failed": run["failed"]} if run["failed"] else {}
        rate, left = self._rate(run["scored"] + run["failed"]), run["unresolved"] or 0
        return {
            "state": run["phase"] or "collecting", "planned": run["planned"] or 0, "scored": run["scored"],
            "failed": failed, "unresolved": left, "mean_reward": run["mean_reward"], "running": None, "requeued": 0,
            "concurrency": record.concurrency if record else None,
            "is_adaptive": bool(record and record.concurrency_steps),
            "rollouts_per_s": rate, "left_s": left / rate if rate and not run["phase"] else None,
            "longest": [], "servers": [],
        }  # fmt: skip

    def _rate(self, finished: int) -> float:
        now = time.monotonic()
        self._samples.append((now, finished))
        while self._samples[0][0] < now - RATE_OVER_S:
            self._samples.popleft()
        began_at, before = self._samples[0]
        return round((finished - before) / (now - began_at), 2) if now > began_at else 0.0


def _refreshed(view: RunView) -> JsonObject:
    view.refresh(INDEXING_S)
    return view.as_json()


def _event(name: str, data: Mapping[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dump_json(data))
