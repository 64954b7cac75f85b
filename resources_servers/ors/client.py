"""Call an ORS server: JSON routes, and calls that answer with server-sent events. Every wait has a limit."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import orjson
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator

from nemo_gym import EnvironmentFailed, Overloaded
from resources_servers.ors.demo import Demo

FULL = (429, 503)
RESUMES = 3
"""How often a broken stream is resumed. A server keeps the result of a call for a minute."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
QUICK_S = 30.0
"""The time limit of routes that run no code of the environment, in seconds."""
SHORTEST_SECRET = 6
"""Shorter secrets are not masked in replies, because other texts contain them by chance."""
SHOWN = 300

AnswerT = TypeVar("AnswerT")
Json = dict[str, Any]


class OrsSettings(BaseModel):
    """The address of an ORS server, and the limits of its calls."""

    address: str | None = None
    """The URL of an environment, `http://host:port/env_name`, or of a server, for its first environment.
    null: the number game of this folder."""
    api_key: str | None = None
    """Sent as `X-API-Key`."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Sent to the environment when a session is created. May be written as a JSON object in one string."""
    call_timeout_s: float = Field(default=600.0, gt=0)
    """The time limit of a tool call, in seconds."""
    silence_s: float = Field(default=60.0, gt=0)
    """How long the reply to a tool call may be silent, in seconds. Servers send a comment every 10 s."""
    setup_timeout_s: float = Field(default=600.0, gt=0)
    """The time limit of a task's setup, in seconds."""
    overload_wait_s: float = Field(default=60.0, ge=0)
    """How long a call is retried while the server is full (429, 503), in seconds."""
    max_reply_mb: float = Field(default=16.0, gt=0)

    @field_validator("address")
    @classmethod
    def _is_url(cls, given: str | None) -> str | None:
        if given is not None and (urlsplit(given).scheme not in ("http", "https") or not urlsplit(given).hostname):
            raise ValueError(f"'{given}' is not a URL. Write http://host:port/env_name")
        return given

    @field_validator("secrets", mode="before")
    @classmethod
    def _of_text(cls, given: object) -> object:
        try:
            return json.loads(given) if isinstance(given, str) else given or {}
        except ValueError:
            # Do not quote the text, because it contains secrets.
            raise ValueError('the text is not a JSON object. Write {"NAME": "value"}') from None


class Refused(EnvironmentFailed):
    """A reply with an error status, which is in `code`."""

    code = 0


class Done(NamedTuple):
    """The result of a call over server-sent events, and the id under which the server ran it."""

    task_id: str
    text: str


class Ors:
    """A client of one environment. It opens its connections on first use, and again after `close`."""

    def __init__(self, settings: OrsSettings) -> None:
        self.settings = settings
        self.sessions: set[str] = set()
        """The ids of the open sessions."""
        self.env = ""
        self._base = settings.address or "number game"
        self._http: aiohttp.ClientSession | None = None
        self._demo = Demo()
        self._opening = asyncio.Lock()
        self._has_secrets_header = False
        values = (*settings.secrets.values(), settings.api_key or "")
        plain = {each for each in values if len(each) >= SHORTEST_SECRET}
        # A reply is JSON, and the text in it may be JSON, too.
        quoted = {json.dumps(each)[1:-1] for each in plain}
        written = plain | quoted | {json.dumps(each)[1:-1] for each in quoted}
        self._secret = re.compile("|".join(map(re.escape, sorted(written, key=len, reverse=True))) or "(?!)")

    async def open(self) -> None:
        """Connect, and find the environment's name. Raise the errors of `json` if that fails."""
        async with self._opening:
            if self._http is None:
                self._http = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), trust_env=True
                )
                try:
                    await self._look_up(urlsplit(self.settings.address or await self._demo.start()))
                except BaseException:
                    await self.close()
                    raise

    async def _look_up(self, address: Any) -> None:
        prefix, _, self.env = address.path.rstrip("/").rpartition("/")
        self._base = f"{address.scheme}://{address.netloc}{prefix}"
        if not self.env:
            names = await self.json(list[str], "GET", "/list_environments")
            self.env = names[0] if names else ""
        if self.settings.secrets:
            # ors-sdk expects secrets in the body of /create. openreward, which has this route, expects a header.
            try:
                await self.json(Any, "GET", "/version")
                self._has_secrets_header = True
            except Refused:
                self._has_secrets_header = False

    async def close(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        await self._demo.stop()

    async def create(self, sid: str, task: Mapping[str, object]) -> None:
        """Begin a task in a session. Raise the errors of `json`."""
        body, secrets, headers = {"env_name": self.env, **task}, self.settings.secrets, {}
        if secrets and self._has_secrets_header:
            values = {name: {"value": value} for name, value in secrets.items()}
            headers["X-Secrets"] = base64.b64encode(orjson.dumps(values)).decode()
        elif secrets:
            body["secrets"] = secrets
        await self.json(Any, "POST", "/create", sid, body, headers=headers, within_s=self.settings.setup_timeout_s)

    async def json(
        self, kind: type[AnswerT] | Any, method: str, path: str, sid: str = "", body: Json | None = None, *,
        headers: Mapping[str, str] | None = None, within_s: float = QUICK_S,
    ) -> AnswerT:  # fmt: skip
        """Return the reply of a route, after a check that it has the type `kind`.

        Raise `Refused` for an error status, `Overloaded` if the server is full, and `EnvironmentFailed` for a
        lost connection, a late reply or an invalid one.
        """
        async with self._bounded(f"{method} {path}", within_s):
            async with self._reply(method, path, sid, body, headers=headers) as response:
                parts = [part async for part in self._parts(response)]
            return self.parsed(kind, b"".join(parts).decode("utf-8", "replace"))

    async def stream(self, path: str, sid: str = "", body: Json | None = None, *, within_s: float) -> Done:
        """Return the result of a route with server-sent events. A stream that breaks is resumed by the call's id.

        Raise the errors of `json`.
        """
        task_id, text = "", []
        async with self._bounded(f"POST {path}", within_s):
            for tries in range(RESUMES + 1):
                given = {**(body or {}), "task_id": task_id} if task_id else body or {}
                text.clear()
                try:
                    async with self._reply("POST", path, sid, given, silence_s=self.settings.silence_s) as response:
                        async for event, data in _events(self._parts(response)):
                            if event == "task_id":
                                task_id = data.strip()
                            elif event == "error":
                                raise EnvironmentFailed(f"the call failed: {data}")
                            elif event in ("chunk", "end"):
                                text.append(data)
                            if event == "end":
                                return Done(task_id, self.masked("".join(text)))
                    raise aiohttp.ClientPayloadError("the reply ended without a result")
                except aiohttp.ServerTimeoutError:
                    raise
                except aiohttp.ClientError:
                    # Without its id, the call might run twice.
                    if not task_id or tries == RESUMES:
                        raise
                await asyncio.sleep(FIRST_PAUSE_S * 2**tries)
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def _reply(
        self, method: str, path: str, sid: str, body: Json | None, *,
        headers: Mapping[str, str] | None = None, silence_s: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:  # fmt: skip
        """Yield a successful reply. While the server is full, retry until `overload_wait_s` is over."""
        began_at, pause_s = time.monotonic(), FIRST_PAUSE_S
        own = {"X-Session-ID": sid, "X-API-Key": self.settings.api_key or ""}
        sent = {name: value for name, value in {**own, **(headers or {})}.items() if value}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=QUICK_S, sock_read=silence_s)
        if self._http is None:
            raise EnvironmentFailed("the connection is closed")
        while True:
            async with self._http.request(
                method, f"{self._base}{path}", json=body, headers=sent, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status == 200:
                    yield response
                    return
                detail = self.masked((await response.content.read(4 * SHOWN)).decode("utf-8", "replace"))[:SHOWN]
                problem = f"answered {response.status}: {detail}"
                if response.status not in FULL:
                    error = Refused(problem)
                    error.code = response.status
                    raise error
                asked = response.headers.get("Retry-After", "")
                pause_s = min(float(asked) if asked.isdecimal() else 2 * pause_s, LONGEST_PAUSE_S)
                # openreward also answers 503 during a task's setup, which has a limit of its own.
                is_starting = response.headers.get("X-Backend-State") == "starting"
                if not is_starting and time.monotonic() + pause_s > began_at + self.settings.overload_wait_s:
                    limit = f"{self.settings.overload_wait_s:g} s (overload_wait_s)"
                    raise Overloaded(f"the server is still full after {limit}: {problem}", tier="environment")
            await asyncio.sleep(pause_s)

    async def _parts(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > self.settings.max_reply_mb * 2**20:
                raise EnvironmentFailed(f"the reply is larger than {self.settings.max_reply_mb:g} MB (max_reply_mb)")
            yield part

    @asynccontextmanager
    async def _bounded(self, where: str, seconds: float) -> AsyncIterator[None]:
        """Limit the block's time, and name the server and the route in its errors."""
        try:
            async with asyncio.timeout(seconds):
                yield
            return
        except aiohttp.ServerTimeoutError as error:
            problem = f"the server sends nothing: {error}"
        except TimeoutError:
            problem = f"no complete reply within {seconds:g} s"
        except aiohttp.ClientError as error:
            problem = f"no usable reply: {error or type(error).__name__}"
        except (EnvironmentFailed, Overloaded) as error:
            error.args = (f"ORS {self._base}: {where}: {self.masked(str(error))}",)
            raise
        raise EnvironmentFailed(f"ORS {self._base}: {where}: {self.masked(problem)}")

    def parsed(self, kind: type[AnswerT] | Any, text: str) -> AnswerT:
        """Parse a JSON text of type `kind`, without secrets. Raise `EnvironmentFailed` if it is something else."""
        try:
            answer: AnswerT = TypeAdapter(kind).validate_python(orjson.loads(self.masked(text)))
            return answer
        except orjson.JSONDecodeError as error:
            raise EnvironmentFailed(f"the reply is not JSON: {error}") from error
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, problem["loc"])) or "JSON"
            raise EnvironmentFailed(f"the reply is not valid: {place}: {problem['msg']}") from error

    def masked(self, text: str) -> str:
        """Return a server's text without the secrets that the server has received."""
        return self._secret.sub("[redacted]", text)


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str]]:
    """Parse server-sent events. Yield the name and the data of each."""
    event, data, beginning = "", [], []
    async for part in parts:
        *lines, rest = part.split(b"\n")
        if lines:
            lines[0] = b"".join((*beginning, lines[0]))
            beginning.clear()
        beginning.append(rest)
        for line in lines:
            name, _, value = line.rstrip(b"\r").decode("utf-8", "replace").partition(":")
            if name == "event":
                event = value.removeprefix(" ")
            elif name == "data":
                data.append(value.removeprefix(" "))
            elif not name and not value and event:
                yield event, "\n".join(data)
            if not name and not value:
                event, data = "", []
