"""ASGI requests to an app, whether they used the fast path, and test cases made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI
from pydantic import BaseModel, Field

JSON = (b"content-type", b"application/json")


class Outcome(NamedTuple):
    """The outcome of one request."""

    status: int | None
    headers: list[tuple[bytes, bytes]]
    body: bytes
    raised: str


@dataclass(frozen=True)
class Ask:
    """A request. `chunks` replace the body; without `is_complete` the caller then disconnects."""

    path: str = "/add"
    body: bytes = b'{"x": 2}'
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
    method: str = "POST"
    query: str = ""
    root_path: str = ""
    chunks: tuple[bytes, ...] = ()
    is_complete: bool = True

    async def of(self, app: FastAPI) -> tuple[Outcome, bool]:
        """Return the outcome, and whether it used the fast path, which leaves no FastAPI key in the scope."""
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": self.method, "scheme": "http", "path": self.root_path + self.path, "root_path": self.root_path,
            "raw_path": self.path.encode(), "query_string": self.query.encode(), "client": ("127.0.0.1", 9),
            "headers": [*self.headers, (b"host", b"test")], "server": ("test", 80), "state": {},
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
            await asyncio.wait_for(app(scope, receive, send), 100)
        except Exception as error:  # noqa: BLE001 - part of the outcome
            raised = f"{type(error).__name__}: {error}"
        start = next((each for each in sent if each["type"] == "http.response.start"), None)
        body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
        outcome = Outcome(start and start["status"], list(start["headers"]) if start else [], body, raised)
        return outcome, "fastapi_middleware_astack" not in scope


ADD = Ask()
Setup = Callable[[FastAPI, list[Any]], None]


@dataclass(frozen=True)
class Case:
    """An author's changes to an app, requests to it, and which of them use the fast path."""

    setup: Setup
    asks: tuple[Ask, ...]
    fast: tuple[bool, ...]


class Cases(dict[str, Case]):
    """Test cases by name, registered with decorators."""

    def fast(self, *asks: Ask) -> Callable[[Setup], Setup]:
        """Register a case in which every request uses the fast path."""
        return self.of(*((ask, True) for ask in asks or (ADD,)))

    def slow(self, *asks: Ask) -> Callable[[Setup], Setup]:
        """Register a case in which no request uses the fast path."""
        return self.of(*((ask, False) for ask in asks or (ADD,)))

    def of(self, *asks: tuple[Ask, bool]) -> Callable[[Setup], Setup]:
        def register(setup: Setup) -> Setup:
            self[setup.__name__] = Case(setup, tuple(ask for ask, _ in asks), tuple(is_fast for _, is_fast in asks))
            return setup

        return register


async def outcomes_of(app: FastAPI, case: Case) -> tuple[list[Outcome], list[bool], list[Any]]:
    """Return the outcomes, which of them used the fast path, and the notes of the author's code."""
    ran: list[Any] = []
    case.setup(app, ran)
    outcomes = [await ask.of(app) for ask in case.asks]
    return [each for each, _ in outcomes], [is_fast for _, is_fast in outcomes], ran


class Number(BaseModel):
    x: int


class Sum(BaseModel):
    total: int = Field(serialization_alias="theTotal")
    spare: str | None = None


def add_route(app: FastAPI, ran: list[Any], **settings: Any) -> None:
    """Add the plain route of most cases."""

    @app.post("/add", **settings)
    async def add(body: Number) -> dict[str, int]:
        ran.append("add")
        return {"total": body.x + 1}
