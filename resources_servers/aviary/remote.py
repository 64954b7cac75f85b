"""Environments of an Aviary task server (`fhaviary[server]`), over HTTP. Every wait and every reply has a limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import aiohttp
import orjson
from pydantic import BaseModel, Field, StrictBool, TypeAdapter, ValidationError

from nemo_gym import EnvironmentFailed, InvalidTask, Overloaded
from nemo_gym.jsonl import JsonObject, dump_json

if TYPE_CHECKING:
    from aviary.core import ToolRequestMessage

MEGABYTE = 2**20
CONNECT_S, CLOSE_S = 30.0, 10.0
SHOWN = 300
FULL = (429, 503)
OF_THE_TASK = ("IndexError", "KeyError")
"""The errors of `/start` that mean that the server does not have the task."""

AnswerT = TypeVar("AnswerT")
Reset = tuple[list[JsonObject], list[JsonObject]]
Step = tuple[list[JsonObject], Annotated[float, Field(allow_inf_nan=False, strict=True)], StrictBool, StrictBool]


class Started(BaseModel):
    """The reply of `/start`."""

    env_id: str = Field(min_length=1)


class Info(BaseModel):
    """The reply of `/info`."""

    dataset_size: int | None = Field(ge=0)


class NoOrder(EnvironmentFailed):
    """A server whose tasks have no numbers."""


class TaskServer(NamedTuple):
    """The address of a task server, and the limits of its replies."""

    address: str
    api_key: str | None = None
    reply_timeout_s: float = 120.0
    max_reply_mb: float = 16.0

    async def info(self) -> Info:
        """Return the number of the server's tasks. Raise the errors of `call`."""
        async with self.connection() as http:
            return await self.call(http, "GET", "/info", None, Info)

    def connection(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            headers={"X-API-Key": self.api_key} if self.api_key else {},
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0),
            trust_env=True,
        )

    async def call(
        self, http: aiohttp.ClientSession, method: str, path: str, body: JsonObject | None, kind: type[AnswerT] | Any
    ) -> AnswerT:
        """Return the reply of a route, after a check that it has the type `kind`. Nothing is sent twice.

        Raise `InvalidTask` if the server does not have the task, `Overloaded` if it is full, and `EnvironmentFailed`
        for any other error, a lost connection, or a reply that is invalid, late or too large.
        """
        data = None if body is None else dump_json(body)
        headers = {"Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        try:
            async with (
                asyncio.timeout(self.reply_timeout_s),
                http.request(
                    method,
                    f"{self.address.rstrip('/')}{path}",
                    data=data,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                ) as response,
            ):
                content = await self._content(response, path)
        except aiohttp.ClientError as error:
            raise self._failed(path, f"no usable reply: {str(error) or type(error).__name__:.200}") from error
        except TimeoutError as error:
            raise self._failed(path, f"no reply within {self.reply_timeout_s:g} s") from error
        except OSError as error:
            raise self._failed(path, f"no usable reply: {error}") from error
        if response.status != 200:
            raise self._refusal(path, response.status, content)
        try:
            parsed = orjson.loads(content)
            # Only this finds a reply that is nested too deeply for later requests.
            dump_json(parsed)
            answer: AnswerT = TypeAdapter(kind).validate_python(parsed)
            return answer
        except (orjson.JSONDecodeError, orjson.JSONEncodeError) as error:
            raise self._failed(path, f"the reply is not JSON: {error}") from error
        except ValidationError as error:
            raise self._failed(path, f"the reply is not valid: {problem_in(error)}") from error

    async def _content(self, response: aiohttp.ClientResponse, path: str) -> bytes:
        parts, size = [], 0
        async for part in response.content.iter_any():
            parts.append(part)
            if (size := size + len(part)) > self.max_reply_mb * MEGABYTE:
                raise self._failed(path, f"the reply is larger than {self.max_reply_mb:g} MB (max_reply_mb)")
        return b"".join(parts)

    def _refusal(self, path: str, status: int, content: bytes) -> Exception:
        # The detail is a traceback, whose last line is the error.
        lines = _detail_in(content).strip().splitlines() or [""]
        problem = f"answered {status}: {lines[-1][:SHOWN]}"
        if status in FULL:
            return Overloaded(self._text(path, problem), tier="environment")
        if path == "/start" and lines[-1].startswith("NotImplementedError"):
            return NoOrder(self._text(path, problem))
        is_of_task = status == 422 or lines[-1].startswith(OF_THE_TASK)
        if path == "/start" and is_of_task:
            return InvalidTask(self._text(path, problem))
        return self._failed(path, problem)

    def _failed(self, path: str, problem: str) -> EnvironmentFailed:
        return EnvironmentFailed(self._text(path, problem))

    def _text(self, path: str, problem: str) -> str:
        text = f"the Aviary server at {self.address}: {path}: {problem}"
        return text.replace(self.api_key, "[redacted]") if self.api_key else text


class RemoteEnvironment:
    """One environment on a task server, with Aviary's interface."""

    def __init__(self, server: TaskServer, start: JsonObject) -> None:
        self._server, self._start = server, start
        self._http: aiohttp.ClientSession | None = None
        self._env_id: str | None = None
        self.tools: list[Any] = []

    async def reset(self) -> tuple[list[Any], list[Any]]:
        from aviary.core import MessagesAdapter, ToolsAdapter

        self._http = self._server.connection()
        started: Started
        try:
            started = await self._server.call(self._http, "POST", "/start", self._start, Started)
        except NoOrder:
            # Any environment is valid.
            started = await self._server.call(self._http, "POST", "/start", {}, Started)
        self._env_id = started.env_id
        messages, tools = await self._call("/reset", {}, Reset)
        self.tools = self._checked(ToolsAdapter, tools, "/reset")
        return self._checked(MessagesAdapter, messages, "/reset"), self.tools

    async def step(self, action: ToolRequestMessage) -> tuple[list[Any], float, bool, bool]:
        from aviary.core import MessagesAdapter

        messages, reward, done, truncated = await self._call("/step", {"action": action.model_dump(mode="json")}, Step)
        return self._checked(MessagesAdapter, messages, "/step"), reward, done, truncated

    async def close(self) -> None:
        """Close the environment on the server, too. Wait for this a few seconds."""
        http, self._http = self._http, None
        if http is None:
            return
        with suppress(EnvironmentFailed, InvalidTask, Overloaded, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._env_id is not None:
                    await self._server.call(http, "POST", "/close", {"env_id": self._env_id}, Any)
        await http.close()

    async def _call(self, path: str, body: JsonObject, kind: Any) -> Any:
        if self._http is None or self._env_id is None:
            raise EnvironmentFailed(f"the Aviary server at {self._server.address}: {path}: no environment is open")
        return await self._server.call(self._http, "POST", path, {"env_id": self._env_id, **body}, kind)

    def _checked(self, adapter: Any, given: list[JsonObject], path: str) -> list[Any]:
        try:
            checked: list[Any] = adapter.validate_python(given)
            return checked
        except (ValidationError, ValueError, TypeError, LookupError) as error:
            problem = problem_in(error) if isinstance(error, ValidationError) else f"{error!s:.200}"
            raise EnvironmentFailed(
                f"the Aviary server at {self._server.address}: {path}: the reply is not valid: {problem}"
            ) from error


def problem_in(error: ValidationError) -> str:
    """Return the first problem with its place, without the input."""
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"


def _detail_in(content: bytes) -> str:
    try:
        answer = orjson.loads(content)
        return str(answer.get("detail", answer)) if isinstance(answer, dict) else str(answer)
    except orjson.JSONDecodeError:
        return content[:SHOWN].decode("utf-8", "replace")
