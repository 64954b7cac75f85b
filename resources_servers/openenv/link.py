"""One session on an OpenEnv server: a WebSocket on which each request has one reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

import aiohttp
import orjson
from pydantic import BaseModel, Field, ValidationError

from nemo_gym import EnvironmentFailed
from nemo_gym.jsonl import JsonObject, dump_json

SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
OF_THE_ACTION = ("EXECUTION_ERROR", "VALIDATION_ERROR")
"""The error codes after which a session continues, because the error concerns only one request."""
CAPACITY = "CAPACITY_REACHED"
BUSY, MISSING = (429, 503), (404, 405, 501)
LONGEST_ERROR = 2000
MOST_INFO_BYTES = 4 * 1024 * 1024
CLOSE_S = 5.0


class Rejected(Exception):
    """An error of the environment about one request. The session continues."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AtCapacity(Exception):
    """The server has no free session."""


class Address(NamedTuple):
    """The address of an OpenEnv server, for its WebSocket, for its other routes, and for messages."""

    socket: str
    base: str
    shown: str
    """The address without credentials and query."""

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse an address such as `ws://127.0.0.1:8000/ws` or `https://host`. Raise `ValueError` if it is invalid."""
        parts = urlsplit(text)
        # Reading the port checks it.
        if parts.scheme not in SCHEMES or not parts.hostname or parts.port == 0:
            raise ValueError("expected the address of an OpenEnv server, such as ws://127.0.0.1:8000/ws")
        if "session_id" in parse_qs(parts.query, keep_blank_values=True):
            raise ValueError("remove session_id from the address, because each rollout needs its own session")
        path = parts.path.rstrip("/").removesuffix("/ws")
        web = SCHEMES[parts.scheme]
        socket = urlunsplit((web.replace("http", "ws"), parts.netloc, f"{path}/ws", parts.query, ""))
        host = parts.netloc.rpartition("@")[2]
        return cls(socket, urlunsplit((web, parts.netloc, path, "", "")), f"{parts.scheme}://{host}{path}")


@dataclass(frozen=True)
class Server:
    """An OpenEnv server, and the limits on what it may send and how long it may take."""

    address: Address
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_s: float = 30.0
    reply_timeout_s: float = 120.0
    most_bytes: int = 8 * 1024 * 1024
    """The maximum size of a message."""

    def failed(self, problem: str) -> EnvironmentFailed:
        return EnvironmentFailed(f"the OpenEnv server at {self.address.shown}: {problem}")

    def unreachable(self, path: str, error: Exception) -> EnvironmentFailed:
        """Return the failure for a missing reply, without the error's text, which may have credentials."""
        cause = f"status {error.status}" if isinstance(error, aiohttp.ClientResponseError) else type(error).__name__
        limit = f"the limit is {self.connect_timeout_s:g} s"
        return self.failed(f"no reply to {path} ({cause}; {limit}). Is the server running?")

    async def info(self, path: str, body: JsonObject | None = None) -> Any:
        """Return the JSON of an HTTP route, or None if the server does not have the route.

        Raise `EnvironmentFailed` if there is no usable reply within `connect_timeout_s`.
        """
        timeout = aiohttp.ClientTimeout(total=self.connect_timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self.headers) as client,
                client.request("GET" if body is None else "POST", f"{self.address.base}{path}", json=body) as reply,
            ):
                if reply.status in MISSING:
                    return None
                reply.raise_for_status()
                text = await _read_up_to(reply.content, MOST_INFO_BYTES)
            return orjson.loads(text)
        except (aiohttp.ClientError, OSError) as error:
            raise self.unreachable(path, error) from error
        except ValueError as error:
            raise self.failed(f"the reply to {path} is not JSON of at most {MOST_INFO_BYTES} bytes") from error


class Observed(BaseModel):
    """The reply to `reset` and `step`."""

    observation: dict[str, Any]
    reward: float | None = Field(default=None, allow_inf_nan=False)
    done: bool = False


class Frame(BaseModel):
    type: str
    data: dict[str, Any]


class Link:
    """A session on an OpenEnv server. After any fault of the connection, every request fails with that fault."""

    def __init__(self, server: Server, client: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._server, self._client, self._socket = server, client, socket
        self._waiting: asyncio.Future[Frame] | None = None
        self._fault: Exception | None = None
        self._has_begun = False
        self.unsound: EnvironmentFailed | None = None
        """The fault because of which earlier replies cannot be trusted."""
        # Read all the time, because pings must be answered while the model writes its turn.
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, server: Server) -> Self:
        """Connect. Raise `AtCapacity` if the server is busy, and `EnvironmentFailed` if it cannot be reached."""
        client = aiohttp.ClientSession(headers=server.headers)
        closing = aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
        try:
            async with asyncio.timeout(server.connect_timeout_s):
                connecting = client.ws_connect(server.address.socket, max_msg_size=server.most_bytes, timeout=closing)
                return cls(server, client, await connecting)
        except BaseException as error:
            await client.close()
            if isinstance(error, aiohttp.WSServerHandshakeError) and error.status in BUSY:
                raise AtCapacity(f"status {error.status}") from error
            if isinstance(error, (aiohttp.ClientError, OSError)):
                raise server.unreachable("the WebSocket", error) from error
            raise

    async def ask(self, kind: str, data: JsonObject) -> Observed:
        """Send a `reset` or `step` and return the observation.

        Raise `Rejected` for an error about this request, `AtCapacity` if the server has no free session, and
        `EnvironmentFailed` if the connection is lost or the reply is invalid or late.
        """
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            if self._fault is None:
                async with asyncio.timeout(self._server.reply_timeout_s):
                    # A lost connection is reported by the reader, which may still have the server's reason.
                    with suppress(ConnectionError, aiohttp.ClientError):
                        await self._socket.send_str(dump_json({"type": kind, "data": data}).decode())
                    frame = await self._waiting
                return self._observed(frame)
        except TimeoutError:
            self._end(self._server.failed(f"no reply to {kind} within {self._server.reply_timeout_s:g} s"))
        except asyncio.CancelledError:
            # A late reply would be taken for the reply to the next request.
            self._end(self._server.failed(f"{kind} was interrupted"))
            raise
        finally:
            self._waiting.cancel()
        assert self._fault is not None
        raise self._fault

    async def close(self) -> None:
        """End the session, so that the server can give its place to another one. Wait for this a few seconds."""
        with suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
            async with asyncio.timeout(CLOSE_S):
                # After a fault, the server may not answer any more, and closing the connection ends the session.
                if self._fault is None:
                    await self._socket.send_str('{"type":"close"}')
                    await self._socket.close()
        self._reader.cancel()
        await self._client.close()

    def _observed(self, frame: Frame) -> Observed:
        if frame.type == "error":
            raise Rejected(*_error_in(frame))
        self._has_begun = True
        try:
            observed = Observed.model_validate(frame.data)
            # Only this finds an observation that is nested too deeply for later requests.
            dump_json(observed.observation)
            return observed
        except ValidationError as error:
            problem = f"{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
        except orjson.JSONEncodeError as error:
            problem = str(error)
        self._end(self._server.failed(f"invalid observation: {problem}"))
        assert self._fault is not None
        raise self._fault

    async def _read(self) -> None:
        while self._fault is None:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                self._take(message.data)
            elif message.type is aiohttp.WSMsgType.ERROR:
                self._end(self._server.failed(f"the connection failed: {message.data!s:.200}"))
            else:
                closing = f"closed the connection (code {self._socket.close_code})"
                is_data = message.type is aiohttp.WSMsgType.BINARY
                self._end(self._server.failed("sent a binary message" if is_data else closing))

    def _take(self, text: str) -> None:
        try:
            frame = Frame.model_validate(orjson.loads(text))
        except ValueError:
            self._end(self._server.failed(f"sent an invalid message: {text[:100]!r}"))
            return
        code, problem = _error_in(frame) if frame.type == "error" else ("", "")
        if code == CAPACITY and not self._has_begun:
            self._end(AtCapacity(problem))
        elif frame.type not in ("observation", "error") or (code and code not in OF_THE_ACTION):
            self._end(self._server.failed(f"{code or frame.type}: {problem or 'an unexpected message'}"))
        elif self._waiting is None or self._waiting.done():
            # The replies before it may have been wrong, too.
            self.unsound = self._server.failed("sent a message without a request")
            self._end(self.unsound)
        else:
            self._waiting.set_result(frame)

    def _end(self, fault: Exception) -> None:
        """Record the first fault, and let a waiting request fail with it."""
        self._fault = self._fault or fault
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._fault)


def _error_in(frame: Frame) -> tuple[str, str]:
    """Return the code and the message of an error."""
    details = frame.data.get("errors")
    problems = [
        f"{'.'.join(map(str, each.get('loc') or ()))}: {each.get('msg')}"
        for each in (details if isinstance(details, list) else ())
        if isinstance(each, dict)
    ]
    message = "; ".join([str(frame.data.get("message", "")), *problems])
    return str(frame.data.get("code", "")) or "an error without a code", message[:LONGEST_ERROR]


async def _read_up_to(content: aiohttp.StreamReader, most_bytes: int) -> bytes:
    chunks, size = [], 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        if (size := size + len(chunk)) > most_bytes:
            raise ValueError("too long")
    return b"".join(chunks)
