"""For authors' tests: a server from its folder's own config, a rollout in process, a model with given replies.

server = make_server(CounterServer)
async with rollout(server, initial_count=3) as attempt:
    await attempt.call("increment_counter", count=2)
    assert (await attempt.verify(reply("Done."), expected_count=5)).reward == 1.0
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import orjson
import yaml
from omegaconf import OmegaConf
from pydantic import PrivateAttr

from nemo_gym.config.settings import SERVER_TYPES, BaseServerConfig
from nemo_gym.errors import DataError, ServerCallError
from nemo_gym.http.client import ServerClient, encode_json
from nemo_gym.http.internal import Reply
from nemo_gym.schemas.items import FunctionToolCall, OutputMessage, OutputText
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.rollout import Graded
from nemo_gym.servers.base import SimpleServer

ServerT = TypeVar("ServerT", bound=SimpleServer)

TEST_ADDRESS: dict[str, Any] = {"host": "127.0.0.1", "port": 0}
JSON = {"content-type": "application/json"}


def reply(*items: str | FunctionToolCall) -> Response:
    """A model's response: each text is an assistant message, each `call(…)` a tool call."""
    output = [
        OutputMessage(id=f"msg_{number}", content=[OutputText(text=item)]) if isinstance(item, str) else item
        for number, item in enumerate(items)
    ]
    return Response(id="resp_test", created_at=0, model="test", output=list(output))


def call(name: str, **arguments: Any) -> FunctionToolCall:
    """A tool call with these arguments; `call_id` follows from the name."""
    return FunctionToolCall(name=name, arguments=orjson.dumps(arguments).decode(), call_id=f"call_{name}")


class FakeModel:
    """A model that gives the replies it was made with, one after the other, and remembers what it was asked.

    The last reply is repeated once all have been given.
    """

    def __init__(self, replies: Iterable[str | FunctionToolCall | Response]) -> None:
        given = [each if isinstance(each, Response) else reply(each) for each in replies]
        if not given:
            raise ValueError("a FakeModel needs at least one reply")
        self.requests: list[dict[str, Any]] = []
        self._replies = itertools.chain(given, itertools.repeat(given[-1]))

    def answer(self, request: dict[str, Any]) -> Response:
        """The next reply."""
        self.requests.append(request)
        return next(self._replies)


class FakeClient(ServerClient):
    """A server client whose only server is a model, whatever name it is called by."""

    _model: FakeModel | None = PrivateAttr(default=None)

    async def _send(self, server_name: str, url_path: str, method: str, **given: Any) -> Reply:
        if self._model is None or url_path != "/v1/responses":
            raise ServerCallError(f"{method} {url_path} on '{server_name}': this test has no such server")
        request = orjson.loads(encode_json(given["json"]))
        body = self._model.answer(request).model_dump_json().encode()
        return Reply(200, [(b"content-type", b"application/json")], body, method, f"http://{server_name}{url_path}")


def make_server(cls: type[ServerT], *, model: FakeModel | None = None, **settings: Any) -> ServerT:
    """A server as its folder's own config describes it; `settings` replace single keys of the block.

    Raises `DataError` where the folder has no config with a block for it and `settings` do not suffice.
    """
    folder = Path(inspect.getfile(cls)).parent
    name, block = _block_of(folder)
    client = FakeClient(head_server_config=BaseServerConfig(**TEST_ADDRESS), global_config_dict=OmegaConf.create({}))
    client._model = model
    kind = cls.model_fields["config"].annotation
    assert kind is not None
    config = kind.model_validate({"entrypoint": "app.py", **block, **TEST_ADDRESS, "name": name, **settings})
    return cls(config=config, server_client=client)


def _block_of(folder: Path) -> tuple[str, dict[str, Any]]:
    for path in sorted((folder / "configs").glob("*.yaml")):
        for name, tiers in (yaml.safe_load(path.read_text("utf-8")) or {}).items():
            for type_ in SERVER_TYPES:
                block = (tiers.get(type_) or {}).get(folder.name) if isinstance(tiers, dict) else None
                if block is not None:
                    return str(name), block
    return folder.name, {}


class Attempt:
    """One rollout under way: calls tools and verifies, with the session's cookie."""

    def __init__(self, client: httpx.AsyncClient, row: dict[str, Any]) -> None:
        self._client = client
        self._row = row
        self.calls: list[FunctionToolCall] = []
        """The tool calls made so far; `verify` without a response grades these."""

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Call a tool and return what the model would be told."""
        self.calls.append(call(name, **arguments))
        answer = await self._client.post(f"/{name}", json=arguments)
        return answer.text

    async def verify(self, response: Response | None = None, **fields: Any) -> Graded:
        """The graded row; `fields` are laid over the row's own."""
        told = response if response is not None else reply(*self.calls, "Done.")
        body = {**self._row, **fields, "response": told.model_dump(mode="json")}
        answer = await self._client.post("/verify", content=encode_json(body), headers=JSON)
        if answer.is_error:
            raise DataError(f"/verify answered {answer.status_code}: {answer.text}")
        return Graded.model_validate_json(answer.content)


@asynccontextmanager
async def rollout(server: SimpleServer, **row: Any) -> AsyncIterator[Attempt]:
    """Seed a session from a row's fields on a server in process, and close it at the end.

    What a handler raises is raised here, with its traceback.
    """
    full_row = {"responses_create_params": {"input": []}, **row}
    transport = httpx.ASGITransport(app=server.setup_webserver())
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        seeded = await client.post("/seed_session", content=encode_json(full_row), headers=JSON)
        if seeded.is_error:
            raise DataError(f"/seed_session answered {seeded.status_code}: {seeded.text}")
        yield Attempt(client, full_row)
        await client.post("/close_session")
