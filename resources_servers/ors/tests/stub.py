"""The number game as a hostile ORS server: routes of it can be replaced by faults. It counts its requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from resources_servers.ors.demo import Demo

Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stub(Demo):
    def __init__(self, **faults: Fault) -> None:
        super().__init__()
        self.faults = faults
        self.seen: list[tuple[str, Any, dict[str, str]]] = []
        """The route, the body and the headers of each request."""
        self.pinged = asyncio.Event()
        """Set after the third ping."""

    def asked(self, route: str) -> int:
        return [each for each, _, _ in self.seen].count(route)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        route = request.path.rpartition("/")[2]
        body = await request.json() if request.body_exists else None
        self.seen.append((route, body, dict(request.headers)))
        if self.asked("ping") == 3:
            self.pinged.set()
        if fault := self.faults.get(route):
            return await fault(request)
        if route == "version":
            return web.Response(status=404)
        return await super()._answer(request)


@asynccontextmanager
async def stub(**faults: Fault) -> AsyncIterator[tuple[Stub, str]]:
    """Serve a stub, and yield it with its address."""
    server = Stub(**faults)
    try:
        yield server, await server.start()
    finally:
        await server.stop()


def replies(*answers: Fault) -> Fault:
    """Answer each request with the next of these, and then always with the last one."""
    rest = list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (rest.pop(0) if len(rest) > 1 else rest[0])(request)

    return answer


def status(code: int, text: str = "no", **headers: str) -> Fault:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            status=code, text=text, headers={name.replace("_", "-"): headers[name] for name in headers}
        )

    return answer


def says(value: object) -> Fault:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(value)

    return answer


def streams(*parts: str | bytes, ends: str = "closed", task_id: str = "t1") -> Fault:
    """Send these parts of an event stream. Then end it, abort the connection, fall silent, or repeat the last part."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if task_id:
            await response.write(f"event: task_id\ndata: {task_id}\n\n".encode())
        for part in parts:
            await response.write(part.encode() if isinstance(part, str) else part)
        while ends == "endless" and request.transport and not request.transport.is_closing():
            await response.write(str(parts[-1]).encode())
            await asyncio.sleep(0)
        if ends == "silent":
            # Until the client hangs up.
            while request.transport and not request.transport.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if ends == "aborted" and request.transport:
            request.transport.abort()
        return response

    return answer


def result(**output: object) -> Fault:
    """Answer a tool call with this output."""
    written = json.dumps({"ok": True, "output": {"blocks": [{"type": "text", "text": "ok"}], **output}})
    return streams(f"event: end\ndata: {written}\n\n")


def ends_with(data: str) -> Fault:
    return streams(f"event: end\ndata: {data}\n\n")
