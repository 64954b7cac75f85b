"""The only services that a program in a sandbox can call: the policy, and the environment's tools over MCP.

The program knows an address with a secret path. The gateway adds what the program must not know: the addresses of the
run's servers, the run's token, and the rollout's session. It also counts and records the model calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson
import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_call, failure_of_reply, problem_of_body
from nemo_gym.capture.exchange import DIALECTS
from nemo_gym.context.current import current_work
from nemo_gym.errors import AgentFailed, DataError, EnvironmentFailed, ModelFailed, RolloutError, ServerCallError
from nemo_gym.harness.conversations import Conversations, Graded
from nemo_gym.harness.exchange import Exchange
from nemo_gym.harness.record import Record, record_of
from nemo_gym.harness.tool_results import ToolResult, results_of
from nemo_gym.http.reply import Reply, too_large
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.responses import RESPONSES_PATH, sum_of_counts
from nemo_gym.schemas.shapes import Item
from nemo_gym.web.shutdown import answering

LARGEST_REQUEST_BYTES = 64 * 2**20
CLOSE_S = 5
KEEP_ALIVE_S = 3600
"""Seconds that an idle connection stays open: longer than programs keep theirs, because closing one in use fails."""
MCP_PATH = "/mcp"
PASSED_ON = ("accept", "mcp-protocol-version", "mcp-session-id", "anthropic-version", "anthropic-beta")
"""Headers of the program's requests that are forwarded to the servers."""
BAD_REQUEST, NOT_FOUND, WRONG_METHOD, TOO_LARGE, TOO_MANY = 400, 404, 405, 413, 429
SERVER_ERROR, BAD_GATEWAY = 500, 502
JSON = "application/json"


@dataclass(frozen=True)
class ToolAddress:
    """The address of a rollout's tools: the resources server, its MCP path, and the headers of the session."""

    server: str
    path: str = MCP_PATH
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Translated(NamedTuple):
    """A call of another model API, as a call of the Responses API."""

    request: bytes
    answer: Callable[[int, bytes], tuple[bytes, str]]
    """A function that converts the status and the body of the answer to a body and its media type."""


class Recorded(NamedTuple):
    """The conversation that is graded."""

    response: JsonObject
    record: Record
    side_calls: int
    """The number of model calls outside of this conversation."""

    @property
    def claims(self) -> Mapping[str, int]:
        """The counts of claims and of side calls, for the result."""
        return {
            "side_calls": self.side_calls,
            "claimed_answers": self.record.claimed_answers,
            "claimed_observations": self.record.claimed_observations,
        }


@dataclass
class Gateway:
    """The HTTP gateway through which the program of one rollout reaches the model and the tools.

    Create it in the rollout's asyncio task, because it copies that task's context.
    """

    client: ServerClient
    model_server: str
    model_prefix: str = ""
    """The prefix of each model route, such as `/ng-rollout/<id>`."""
    model_name: str = "policy"
    """The model name for the program to use in its calls. It is listed at `/v1/models`."""
    tools: ToolAddress | None = None
    most_calls: int | None = None
    """The maximum number of model calls, or None for no limit. Further calls get an error response."""

    task: str = ""
    """The text of the task. It identifies the conversation that is graded."""
    graded_conversation: Graded = "first"
    environment_tools: Collection[str] = ()
    """The names of the environment's tools."""
    translate: Callable[[str, str, bytes], Translated | None] = lambda path, query, body: None
    """A function that translates a POST to another route, from its path, query and body. It may raise `DataError`."""

    exchanges: list[Exchange] = field(default_factory=list)
    """The answered model calls, in the order of their answers."""
    failure: RolloutError | None = None
    """The failure of the last model call, or None if that call succeeded or there was no call."""
    tool_failure: RolloutError | None = None
    """The failure of the first tool call that the resources server did not answer, or answered with a server error.

    The program may ignore such a failure, but the rollout cannot be graded.
    """
    usage: object = None
    """The sum of the token counts of all calls, or None if no response has contained them."""
    calls: int = 0
    limit_reached: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._secret = secrets.token_urlsafe(24)
        self._cookies: dict[str, str] = {}
        self._conversations = Conversations()
        self._results: list[ToolResult] = []
        # Each request is handled in a new task. Copy the context, so that these tasks have the rollout's id and
        # deadline.
        self._context = contextvars.copy_context()

    def recorded(self) -> Recorded:
        """Return the graded conversation, with the usage of all calls.

        Raise `AgentFailed` without an answered call, or if the Responses API cannot express the conversation.
        """
        if not self.exchanges:
            raise AgentFailed("the program has not called the model")
        try:
            calls = self._conversations.graded(self.graded_conversation, task=self.task, model_name=self.model_name)
            record = record_of(calls, self._results, self.environment_tools)
            response = calls[-1].exchange.response(self.usage, record.output).model_dump(mode="json")
        except DataError as error:
            raise AgentFailed(str(error)) from error
        return Recorded(response, record, len(self.exchanges) - len(calls))

    def items(self) -> list[Item]:
        """Return the items of the conversation so far, for the record of a failure."""
        try:
            items: list[Item] = self.recorded().response["output"]
            return items
        except AgentFailed:
            return []

    @asynccontextmanager
    async def serving(self, listener: socket.socket, host: str = "127.0.0.1") -> AsyncIterator[str]:
        """Serve on a listening socket, and yield the URL below which the program reaches `/v1/…` and `/mcp`.

        `host` is the host name under which the program reaches the socket.
        """
        config = uvicorn.Config(
            self._respond, interface="asgi3", ws="none", lifespan="off", server_header=False, proxy_headers=False,
            log_config=None, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=CLOSE_S,
        )  # fmt: skip
        url = f"http://{host}:{listener.getsockname()[1]}/{self._secret}"
        async with answering(config, listener):
            yield url

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = f"/{self._secret}"
        if not scope["path"].startswith(prefix):
            await Response(status_code=NOT_FOUND)(scope, receive, send)
            return
        # Remove the secret from the path, so that the access log does not contain it.
        scope["path"] = scope["path"].removeprefix(prefix)
        handling = self._answer(Request(scope, receive))
        # Ignore an incomplete request, because its program has ended or has closed the connection.
        with suppress(ClientDisconnect):
            try:
                answer = await asyncio.get_running_loop().create_task(handling, context=self._context.copy())
            except HTTPException as error:
                answer = _error(error.status_code, error.detail)
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path, method = request.scope["path"].rstrip("/"), request.method
        if path in DIALECTS and method == "POST":
            return await self._ask_model(path, await _body_of(request), _passed_on(request.headers))
        if path == MCP_PATH and self.tools is not None:
            if method != "POST":
                return _error(WRONG_METHOD, "call the tools with POST: this server does not offer an event stream")
            return await self._call_tools(self.tools, await _body_of(request), _passed_on(request.headers))
        if path == "/v1/models" and method == "GET":
            return _json(200, {"object": "list", "data": [{"id": self.model_name, "object": "model", "created": 0}]})
        if path in ("", "/v1") and method in ("GET", "HEAD"):
            return _json(200, {})
        if method == "POST":
            try:
                call = self.translate(path, request.url.query, await _body_of(request))
            except DataError as error:
                return _error(BAD_REQUEST, str(error))
            if call is not None:
                answer = await self._ask_model(RESPONSES_PATH, call.request, _passed_on(request.headers))
                body, media_type = call.answer(answer.status_code, bytes(answer.body))
                return Response(body, answer.status_code, media_type=media_type)
        routes = [*DIALECTS, "/v1/models", *([MCP_PATH] if self.tools else [])]
        return _error(NOT_FOUND, f"{method} {path} is not available here. The routes are: {', '.join(routes)}")

    async def _ask_model(self, path: str, body: bytes, headers: dict[str, str]) -> Response:
        if self.most_calls is not None and self.calls >= self.most_calls:
            self.limit_reached.set()
            return _error(TOO_MANY, f"the limit of {self.most_calls} calls of the model is reached", "turn_limit")
        self.calls += 1
        answered = len(self.exchanges)
        try:
            reply = await self.client.post(
                self.model_server, f"{self.model_prefix}{path}", data=body, headers=headers, cookies=self._cookies
            )
        except (ServerCallError, RolloutError) as error:
            self.failure = _failure(error, self.model_server, path, ModelFailed)
            return _error(BAD_GATEWAY, str(self.failure), self.failure.failure_class)
        if not reply.ok:
            self.failure = failure_of_reply(
                reply.status, reply.body, server=self.model_server, during=path, otherwise=ModelFailed
            )
            return _in_the_apis_form(reply, self.failure)
        self._cookies |= reply.cookie_values
        self.failure = None
        exchange = Exchange.of(path, body, reply.body, reply.headers.get("content-type", JSON))
        if exchange is None:
            self.failure = ModelFailed(
                f"{self.model_server}: {path} sent an incomplete answer", server=self.model_server
            )
        else:
            self.exchanges.append(exchange)
            self._conversations.add(exchange, answered)
            self.usage = sum_of_counts(self.usage, exchange.usage)
        return _passed(reply)

    async def _call_tools(self, tools: ToolAddress, body: bytes, headers: dict[str, str]) -> Response:
        answered = len(self.exchanges)
        try:
            reply = await self.client.post(tools.server, tools.path, data=body, headers={**headers, **tools.headers})
        except (ServerCallError, RolloutError) as error:
            failure = _failure(error, tools.server, tools.path, EnvironmentFailed)
            self.tool_failure = self.tool_failure or failure
            return _error(BAD_GATEWAY, str(failure), failure.failure_class)
        if reply.status >= SERVER_ERROR:
            self.tool_failure = self.tool_failure or failure_of_reply(
                reply.status, reply.body, server=tools.server, during=tools.path, otherwise=EnvironmentFailed
            )
        results = results_of(body, reply.body, answered)
        self._results += results
        if (spent := current_work().spent) is not None:
            for result in results:
                spent.add_tool(result.name, 1, result.is_error)
        return _passed(reply)


def _failure(
    error: ServerCallError | RolloutError, server: str, path: str, otherwise: type[RolloutError]
) -> RolloutError:
    if isinstance(error, RolloutError):
        return error
    return failure_of_call(error, server=server, during=path, otherwise=otherwise)


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_REQUEST_BYTES:
            raise HTTPException(TOO_LARGE, too_large(LARGEST_REQUEST_BYTES))
    return bytes(body)


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {"content-type": JSON, **{name: headers[name] for name in PASSED_ON if name in headers}}


def _passed(reply: Reply) -> Response:
    return Response(reply.body, reply.status, {"content-type": reply.headers.get("content-type", JSON)})


def _in_the_apis_form(reply: Reply, failure: RolloutError) -> Response:
    """Return an error response in the format that the client packages of model APIs expect."""
    problem = problem_of_body(reply.body)
    return _passed(reply) if problem is None else _error(reply.status, problem.detail, failure.failure_class)


def _error(status: int, message: str, kind: str = "invalid_request_error") -> Response:
    return _json(status, {"type": "error", "error": {"type": kind, "message": message}})


def _json(status: int, content: object) -> Response:
    return Response(orjson.dumps(content), status, media_type=JSON)
