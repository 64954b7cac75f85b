"""Helpers for authors' tests: servers built from their folder's config, in-process rollouts and fake models.

server = make_server(CounterServer)
async with rollout(server, initial_count=3) as attempt:
    await attempt.call("increment_counter", count=2)
    assert (await attempt.verify(reply("Done."), expected_count=5)).reward == 1.0

agent = make_server(MyAgent, model=FakeModel([call("increment_counter", count=2), "Done."]), servers=[server])
assert (await run(agent, initial_count=3, expected_count=5)).reward == 1.0
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import orjson
import uvicorn
import yaml
from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import PrivateAttr, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.calls.address_book import Address, AddressBook
from nemo_gym.calls.caller import encode_json
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_row, faults_in_reply
from nemo_gym.config.server_folders import ServerFolder
from nemo_gym.config.settings import SERVER_TYPES, BaseServerConfig
from nemo_gym.errors import AgentFailed, DataError, EnvironmentFailed, ModelFailed, RolloutError, ServerCallError
from nemo_gym.http.connection import RequestBody
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import RawHeaders, Reply
from nemo_gym.jsonl import JsonObject, loads_exact
from nemo_gym.schemas.items import EasyInputMessage, FunctionToolCall, OutputMessage, OutputText
from nemo_gym.schemas.responses import PLAYED_WITHOUT_MODEL, RESPONSES_PATH, Response
from nemo_gym.schemas.rollout import GROUP_PATH, Graded
from nemo_gym.schemas.row import Row
from nemo_gym.servers.agent import SimpleResponsesAPIAgent
from nemo_gym.servers.also_serve import also_serve_if_asked
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.mcp.endpoint import expose_if_asked
from nemo_gym.servers.model import SimpleResponsesAPIModel
from nemo_gym.servers.tools.handlers import check_bodies
from nemo_gym.servers.tools.parts import ToolOutput, output_of
from nemo_gym.text import problems_in
from nemo_gym.web.failures import Failures
from nemo_gym.web.middleware import CallMiddleware
from nemo_gym.web.shutdown import answering

ServerT = TypeVar("ServerT", bound=SimpleServer)

TEST_ADDRESS = {"host": "127.0.0.1", "port": 0}
JSON = {"content-type": "application/json"}
CALLED_BY_TEST = "nemo_gym.called_by_test"
NO_ROUTE = '{"detail":"Not Found"}'


def reply(*items: str | FunctionToolCall | EasyInputMessage) -> Response:
    """Return a model's response with these items. A string becomes an assistant message.

    Use `call` for a tool call, and `heard` for a user message.
    """
    output = [
        OutputMessage(id=f"msg_{number}", content=[OutputText(text=item)]) if isinstance(item, str) else item
        for number, item in enumerate(items)
    ]
    return Response(id=PLAYED_WITHOUT_MODEL, created_at=0, model="test", output=list(output))


def call(name: str, /, **arguments: object) -> FunctionToolCall:
    """Return a tool call with these arguments; `call_id` is derived from the name."""
    return FunctionToolCall(name=name, arguments=orjson.dumps(arguments).decode(), call_id=f"call_{name}")


def heard(text: str) -> EasyInputMessage:
    """Return a user message in the middle of a conversation, as an agent records it."""
    return EasyInputMessage(role="user", content=text)


class FakeModel:
    """A model that returns the given replies in order, then repeats the last one, and records the requests."""

    def __init__(self, replies: Iterable[str | FunctionToolCall | Response]) -> None:
        given = [each if isinstance(each, Response) else reply(each) for each in replies]
        if not given:
            raise ValueError("FakeModel: replies is empty. Pass at least one reply.")
        self.requests: list[JsonObject] = []
        self._replies = itertools.chain(given, itertools.repeat(given[-1]))

    def answer(self, request: JsonObject) -> Response:
        """Record a request and return the next reply."""
        self.requests.append(request)
        return next(self._replies)


Model = FakeModel | str | None


class _InProcess(InternalClient):
    """A client that calls the apps of servers in this process. Model calls to other names go to the fake model."""

    def __init__(self) -> None:
        super().__init__()
        self.model: FakeModel | None = None
        self.apps: dict[str, ASGIApp] = {}

    async def request(
        self,
        method: str,
        host: str,
        port: int,
        path: str,
        *,
        body: RequestBody = b"",
        headers: RawHeaders = (),
        **_: object,
    ) -> Reply:
        url = f"http://{host}{path}"
        body = body if isinstance(body, bytes) else b"".join(body)
        if host in self.apps:
            asked = httpx.Request(method, url, content=body, headers=list(headers))
            answer = await httpx.ASGITransport(app=self.apps[host]).handle_async_request(asked)
            return Reply(answer.status_code, answer.headers.raw, await answer.aread(), method, url)
        if self.model is None or path != RESPONSES_PATH:
            raise ServerCallError(f"{method} {path} on '{host}': this test has no such server")
        content = self.model.answer(orjson.loads(body)).model_dump_json().encode()
        return Reply(200, [(b"content-type", b"application/json")], content, method, url)


class FakeClient(ServerClient):
    """A server client that calls servers in this process."""

    _connections: _InProcess = PrivateAttr()
    _servers: dict[str, SimpleServer] = PrivateAttr(default_factory=dict)
    _own: _Running | None = PrivateAttr(default=None)

    def address_of(self, server_name: str) -> Address:
        """Return the server's name as its address."""
        return Address(server_name, 0)

    def _open_connections(self) -> InternalClient:
        self._connections = _InProcess()
        return self._connections


def make_server(
    cls: type[ServerT], *, model: Model = None, servers: Iterable[SimpleServer] = (), **settings: object
) -> ServerT:
    """Return a server with the settings from its folder's config; `settings` override single keys.

    A call to the name of one of `servers` reaches that server, and all other calls reach `model`. If `model` is a
    string, it is the value of the setting `model` instead. Raise `DataError` if config and `settings` together are
    incomplete. The folder of a class that was defined in a notebook is the working folder.
    """
    name, block = _block_of(_folder_of(cls))
    return connected_server(cls, {**block, **TEST_ADDRESS, "name": name, **settings}, model=model, servers=servers)


def connected_server(
    cls: type[ServerT], settings: Mapping[str, object], *, model: Model = None, servers: Iterable[SimpleServer] = ()
) -> ServerT:
    """Return a server with only these settings. The configs in its folder are not read."""
    values: dict[str, object] = {"entrypoint": "app.py", **TEST_ADDRESS, **settings}
    folder = _folder_of(cls)
    head = BaseServerConfig.model_validate(TEST_ADDRESS)
    client = FakeClient(head_server_config=head, global_config_dict=OmegaConf.create({}), address_book=AddressBook())
    if isinstance(model, str):
        values["model"], model = model, None
    client._connections.model = model
    client._servers = {_name_of(server): server for server in servers}
    kind = cls.model_fields["config"].annotation
    assert kind is not None
    try:
        config = kind.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        raise DataError(
            f"{folder / 'configs'}: the settings of {cls.__name__} are incomplete ({problems_in(error)}). "
            "Pass the missing ones to make_server."
        ) from error
    return cls(config=config, server_client=client)


def _folder_of(cls: type[SimpleServer]) -> Path:
    try:
        return Path(inspect.getfile(cls)).parent
    except (OSError, TypeError):
        # Use the working folder, because a class that was defined in a notebook or an interpreter has no file.
        return Path.cwd()


def _name_of(server: SimpleServer) -> str:
    return str(getattr(server.config, "name", ""))


def _block_of(folder: Path) -> tuple[str, JsonObject]:
    implementation = ServerFolder.of(folder).implementation
    # Start with the config that has the folder's name, because the others are variants.
    for path in sorted((folder / "configs").glob("*.yaml"), key=lambda path: (path.stem != folder.name, path)):
        for name, tiers in (yaml.safe_load(path.read_text("utf-8")) or {}).items():
            for type_ in SERVER_TYPES:
                block = (tiers.get(type_) or {}).get(implementation) if isinstance(tiers, dict) else None
                if block is not None:
                    return str(name), block
    return folder.name, {}


class Attempt:
    """A rollout in progress on a server, with its session cookie, to call tools and verify."""

    def __init__(self, client: httpx.AsyncClient, row: JsonObject, server: str = "the server") -> None:
        self._client = client
        self._row = row
        self._server = server
        self.calls: list[FunctionToolCall] = []
        """The tool calls made so far; `verify` grades them by default."""

    async def call(self, name: str, /, **arguments: object) -> ToolOutput:
        """Call a tool and return the output for the model. Raise `DataError` for an unknown tool."""
        return await self.send(call(name, **arguments))

    async def send(self, wanted: FunctionToolCall) -> ToolOutput:
        """Send a tool call as a model wrote it, and return the output. Raise the same errors as `call`."""
        self.calls.append(wanted)
        answer = await self._client.post(f"/{wanted.name}", content=wanted.arguments)
        if answer.status_code == 405 or (answer.status_code == 404 and answer.text == NO_ROUTE):
            raise DataError(f"the server has no tool '{wanted.name}'")
        return output_of(answer.content, answer.headers)

    async def verify(
        self, response: Response | None = None, *, compared_with: Sequence[Response] = (), **fields: object
    ) -> Graded:
        """Grade a response and return the graded row. By default, grade a response with the tool calls made so far.

        `fields` override fields of the row. If the server has `verify_group`, it compares the response with the
        responses in `compared_with`. Raise the failure if the graded row reports one.
        """
        graded = response if response is not None else reply(*self.calls, "Done.")
        bodies = [
            {**self._row, **fields, "response": each.model_dump(mode="json")} for each in (graded, *compared_with)
        ]
        path, body = (GROUP_PATH, {"bodies": bodies}) if compared_with else ("/verify", bodies[0])
        # Use a task of its own, so that a check measures how long this call alone holds the event loop.
        answer = await asyncio.create_task(self._client.post(path, content=encode_json(body)))
        _check(answer, path, self._server)
        if compared_with:
            return _graded(encode_json({**bodies[0], **answer.json()["results"][0]}))
        return _graded(answer.content)


def _check(answer: httpx.Response, path: str, server: str) -> None:
    if answer.is_error:
        faults = faults_in_reply(answer.content, f"{path.removeprefix('/')} of {server}")
        raise DataError("; ".join(faults) or f"{path} answered {answer.status_code}: {answer.text}")


class _FailureReplies(CallMiddleware):
    """Middleware that turns failures into responses for calling servers, but raises them for the test itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if CALLED_BY_TEST in scope:
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _Running:
    """A started app, shared by its concurrent rollouts."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.users = 0
        self.stack = AsyncExitStack()
        self.starting = asyncio.Lock()
        self.is_started = False


@asynccontextmanager
async def serving(server: SimpleServer) -> AsyncIterator[httpx.AsyncClient]:
    """Start a server in process, with the servers that it calls, and yield a client for it.

    Exceptions in handlers are raised from the client's call, with their traceback.
    """
    async with _started(server) as app:

        async def called_by_test(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, CALLED_BY_TEST: True}, receive, send)

        transport = httpx.ASGITransport(app=called_by_test)
        async with httpx.AsyncClient(transport=transport, base_url="http://server", headers=JSON) as client:
            yield client


@asynccontextmanager
async def on_a_port(server: SimpleServer) -> AsyncIterator[str]:
    """Serve a server over real HTTP and yield its address. Failures become responses, as in a collection."""
    async with _started(server) as app:
        # Name IPPROTO_TCP, because only then does asyncio set TCP_NODELAY. Without it, small responses are delayed.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            # Listen now, so that callers wait until the server has started instead of being refused.
            listener.listen()
            # Turn off lifespan events, because the app has already been started.
            ws = getattr(app, "websockets", "none")
            config = uvicorn.Config(
                app, http="httptools", ws=ws, lifespan="off", log_config=None, timeout_graceful_shutdown=1
            )
            async with answering(config, listener):
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def _started(server: SimpleServer) -> AsyncIterator[FastAPI]:
    client = server.server_client
    if not isinstance(client, FakeClient):
        app = _app_of(server)
        async with app.router.lifespan_context(app):
            yield app
        return
    if client._own is None:
        client._own = _Running(_app_of(server))
    running = client._own
    running.users += 1
    try:
        async with running.starting:
            if not running.is_started:
                for name, other in client._servers.items():
                    client._connections.apps[name] = await running.stack.enter_async_context(_started(other))
                await running.stack.enter_async_context(running.app.router.lifespan_context(running.app))
                running.is_started = True
        yield running.app
    finally:
        running.users -= 1
        if running.users == 0:
            client._own = None
            await running.stack.aclose()


def _app_of(server: SimpleServer) -> FastAPI:
    app = server.setup_webserver()
    expose_if_asked(server, app)
    also_serve_if_asked(server, app)
    check_bodies(server, app)
    app.add_middleware(_FailureReplies, failures=Failures(_name_of(server), _failure_of(server)))
    server.setup_call_layer(app)
    return app


def _failure_of(server: SimpleServer) -> type[RolloutError]:
    if isinstance(server, SimpleResponsesAPIAgent):
        return AgentFailed
    return ModelFailed if isinstance(server, SimpleResponsesAPIModel) else EnvironmentFailed


@asynccontextmanager
async def rollout(server: SimpleServer, /, **row: object) -> AsyncIterator[Attempt]:
    """Seed a session from the fields of a row, on a server in this process. Close the session at the end.

    Exceptions in handlers are raised from the call that caused them, with their traceback.
    """
    full_row = _full(row)
    async with serving(server) as client:
        seeded = await client.post("/seed_session", content=encode_json(full_row))
        _check(seeded, "/seed_session", _name_of(server))
        yield Attempt(client, full_row, _name_of(server))
        await client.post("/close_session")


async def run(agent: SimpleServer, /, **row: object) -> Graded:
    """Run one rollout on an agent in process, as the collector would, and return the graded row.

    If the rollout fails, raise the error that a collection would record.
    """
    async with serving(agent) as client:
        answer = await client.post("/run", content=encode_json(_full(row)))
    _check(answer, "/run", _name_of(agent))
    return _graded(answer.content)


def _graded(content: bytes) -> Graded:
    row = loads_exact(content)
    if failure := failure_of_row(Row(row)):
        raise failure
    return Graded.model_validate(row)


def _full(row: Mapping[str, object]) -> JsonObject:
    return {"responses_create_params": {"input": []}, **row}
