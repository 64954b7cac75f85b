"""A request to an app as ASGI, whether its answer came in the short way, and cases made of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI
from pydantic import BaseModel, Field

JSON = (b"content-type", b"application/json")


class Told(NamedTuple):
    """What became of one request."""

    status: int | None
    headers: list[tuple[bytes, bytes]]
    body: bytes
    raised: str


@dataclass(frozen=True)
class Ask:
    """A request; `chunks` come in place of the body, and then the caller leaves."""

    path: str = "/add"
    body: bytes = b'{"x": 2}'
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
    method: str = "POST"
    query: str = ""
    root_path: str = ""
    chunks: tuple[bytes, ...] = ()
    is_complete: bool = True

    async def of(self, app: FastAPI) -> tuple[Told, bool]:
        """The answer, and whether it came in the short way: FastAPI's own leaves its mark in the scope."""
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": self.method, "scheme": "http", "path": self.root_path + self.path, "root_path": self.root_path,
            "raw_path": self.path.encode(), "query_string": self.query.encode(), "client": ("127.0.0.1", 9),
            "headers": [*self.headers, (b"host", b"test")], "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        chunks = self.chunks or (self.body,)
        messages = [{"type": "http.request", "body": each, "more_body": True} for each in chunks]
        messages[-1]["more_body"] = not self.is_complete
        sent: list[Any] = []
        is_answered = asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            if self.is_complete:
                await is_answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                is_answered.set()

        raised = ""
        try:
            await asyncio.wait_for(app(scope, receive, send), 5)
        except Exception as error:  # noqa: BLE001 - it is told
            raised = f"{type(error).__name__}: {error}"
        start = next((each for each in sent if each["type"] == "http.response.start"), None)
        body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
        told = Told(start and start["status"], list(start["headers"]) if start else [], body, raised)
        return told, "fastapi_middleware_astack" not in scope


ADD = Ask()
Setup = Callable[[FastAPI, list[Any]], None]


@dataclass(frozen=True)
class Case:
    """What an author does to an app, what is asked of it then, and which of that has the short way."""

    setup: Setup
    asks: tuple[Ask, ...]
    short: tuple[bool, ...]


class Cases(dict[str, Case]):
    """Cases by their names, each noted where it is written."""

    def short(self, *asks: Ask) -> Callable[[Setup], Setup]:
        """A case of which every request has the short way."""
        return self.of(*((ask, True) for ask in asks or (ADD,)))

    def long(self, *asks: Ask) -> Callable[[Setup], Setup]:
        """A case of which none has."""
        return self.of(*((ask, False) for ask in asks or (ADD,)))

    def of(self, *asks: tuple[Ask, bool]) -> Callable[[Setup], Setup]:
        def note(setup: Setup) -> Setup:
            self[setup.__name__] = Case(setup, tuple(ask for ask, _ in asks), tuple(is_short for _, is_short in asks))
            return setup

        return note


async def told_by(app: FastAPI, case: Case) -> tuple[list[Told], list[bool], list[Any]]:
    """The answers, which of them came in the short way, and what the author's code noted while it ran."""
    ran: list[Any] = []
    case.setup(app, ran)
    told = [await ask.of(app) for ask in case.asks]
    return [each for each, _ in told], [is_short for _, is_short in told], ran


class Number(BaseModel):
    x: int


class Sum(BaseModel):
    total: int = Field(serialization_alias="theTotal")
    spare: str | None = None


def add_route(app: FastAPI, ran: list[Any], **settings: Any) -> None:
    """The plain route that most cases have."""

    @app.post("/add", **settings)
    async def add(body: Number) -> dict[str, int]:
        ran.append("add")
        return {"total": body.x + 1}
