"""Routes that become tools over MCP, routes that are rejected at startup, and imports without the setting."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Form, Header, Query, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseStepResponse,
    BaseVerifyRequest,
    SimpleResourcesServer,
    SteppedResourcesServer,
    tool,
)
from nemo_gym.errors import EnvironmentFailed, SignatureError
from nemo_gym.mcp_auto_exposure import CatchAll, McpTool, maybe_auto_expose
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.mcp.tools import harvest
from nemo_gym.testing import call, make_server, reply, rollout, serving
from tests.each_case import each_case

pytestmark = pytest.mark.slow


class Words(BaseModel):
    words: list[str]


class More(BaseModel):
    words: list[str]
    more: Words | None = None


class Tree(BaseModel):
    title: str
    children: list[Tree] = []


class Graded(SimpleResourcesServer):
    @tool
    async def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(any(call.name == "greet" for call in body.response.tool_calls))


def made(*routes: tuple[str, Any], router: APIRouter | None = None, **attributes: Any) -> SimpleResourcesServer:
    """Return a server with these POST routes and a tool."""

    class Made(Graded):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            for path, handler in routes:
                app.post(path)(handler)
            if router is not None:
                app.include_router(router)
            return app

    for name, value in attributes.items():
        setattr(Made, name, value)
    return make_server(Made, expose_tools_over_mcp=True, name="made")


def exposed(server: SimpleServer) -> FastAPI:
    app = server.setup_webserver()
    maybe_auto_expose(server, app)
    return app


def tools_of(server: SimpleResourcesServer) -> dict[str, McpTool]:
    found = harvest(server.setup_webserver(), server.tools(), not_tools=server.NOT_TOOLS)
    return {each.name: each for each in found.tools}


async def one_model(body: Words) -> str:
    """Read words."""
    return " ".join(body.words)


async def two_models(first: Words, second: Words) -> str:
    return ""


async def with_defaults(body: Annotated[Words, Body()], request: Request, trace: str = Header("none")) -> str:
    return ""


async def tree(body: Tree) -> str:
    return ""


async def free(body: dict[str, int]) -> str:
    return ""


async def request_only(request: Request) -> str:
    return ""


@each_case(
    ("handler", "required", "properties"),
    [
        (one_model, ["words"], {"words": {"type": "array", "items": {"type": "string"}}}),
        (with_defaults, ["words"], {"words": {"type": "array", "items": {"type": "string"}}}),
        (two_models, ["first", "second"], {"first": {"$ref": "#/$defs/Words"}, "second": {"$ref": "#/$defs/Words"}}),
        (request_only, None, {}),
        (free, None, None),
    ],
)
def test_tool_schema_is_the_routes_body(handler, required, properties):
    read = tools_of(made(("/read", handler)))["read"]
    assert (read.parameters.get("required"), read.parameters.get("properties")) == (required, properties)
    assert read.parameters["type"] == "object"
    assert (read.path, read.description) == ("/read", handler.__doc__ or "")


def test_schema_contains_the_schemas_it_references():
    grown = tools_of(made(("/grow", tree)))["grow"].parameters
    assert grown["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert grown["$defs"]["Tree"]["properties"] == grown["properties"]


def test_router_routes_are_tools_unless_hidden():
    router = APIRouter()
    router.post("/within")(one_model)
    router.post("/aside", include_in_schema=False)(one_model)
    router.get("/looked_at")(request_only)
    assert list(tools_of(made(router=router))) == ["greet", "within"]


def test_agent_routes_are_not_tools():
    class Game(SteppedResourcesServer):
        @tool
        async def look(self) -> str:
            """Look."""
            return ""

        async def reset(self, body: Words) -> str:
            return ""

        async def step(self, body: Words) -> BaseStepResponse:
            return BaseStepResponse()

    assert list(tools_of(make_server(Game, expose_tools_over_mcp=True))) == ["look"]


async def asks_a_query(body: Words, limit: int = 3) -> str:
    return ""


async def depends_on_query(body: Words, found: str = Depends(lambda limit=Query(): limit)) -> str:
    return ""


async def asks_header(body: Words, key: str = Header()) -> str:
    return ""


async def either(body: Words | More) -> str:
    return ""


async def maybe(body: Words | None = None) -> str:
    return ""


async def listed(body: list[int]) -> str:
    return ""


async def filled_in(word: str = Form()) -> str:
    return ""


async def caught(name: str, request: Request) -> str:
    return ""


async def caught_with_query(name: str, limit: int) -> str:
    return ""


def named(*names: str) -> Any:
    return lambda self, harvested, catchall: [replace(harvested[0], name=name) for name in names]


@each_case(
    ("server", "message"),
    [
        (made(("/read", asks_a_query)), "POST /read cannot be a tool: the route has the query parameter 'limit'"),
        (made(("/read", depends_on_query)), "the route has the query parameter 'limit'"),
        (made(("/read", asks_header)), "the route has the header parameter 'key'"),
        (made(("/read", either)), "the body must be a pydantic model"),
        (made(("/read", maybe)), "the body must be a pydantic model"),
        (made(("/read", listed)), "the body must be a pydantic model"),
        (made(("/read", filled_in)), "the body is application/x-www-form-urlencoded, not JSON"),
        (made(("/read/all", one_model)), "POST /read/all cannot be a tool: the path must be one segment"),
        (made(("/read.all", one_model)), "POST /read.all cannot be a tool"),
        (made(("/read/{name}", caught)), "POST /read/{name} cannot be a tool: the path must be one segment"),
        (made(("/" + "x" * 65, one_model)), "at most 64"),
        (made(("/{name}", caught)), "POST /{name} accepts any tool name, .* Override Made.mcp_tools"),
        (made(("/{name}", caught_with_query)), "the route has the query parameter 'limit'"),
        (made(("/{name}", caught), ("/{name:path}x", caught)), "the path must be one segment"),
        (made(("/{name}", caught), ("/{other}", request_only)), "/{name} and /{other} each accept any tool"),
        (made(("/mcp", one_model)), "Made already has a route /mcp"),
        (made(mcp_tools=named()), "Made does not have tools"),
        (made(mcp_tools=named("read it")), "'read it' is not a valid tool name"),
        (made(mcp_tools=named("verify")), "'verify' is not a valid tool name"),
        (made(mcp_tools=named("one", "one")), "Made has two tools called 'one'"),
    ],
)
def test_route_that_cannot_be_a_tool_is_rejected(server, message):
    with pytest.raises(
        SignatureError, match=f"expose_tools_over_mcp: .*{message.replace('{', '.').replace('}', '.')}"
    ):
        exposed(server)


def test_only_a_resources_server_can_expose_tools():
    class Bare(SimpleServer):
        config: BaseResourcesServerConfig

        def setup_webserver(self) -> FastAPI:
            return self.new_app()

    with pytest.raises(SignatureError, match="only a SimpleResourcesServer has tools, and Bare is not one"):
        exposed(make_server(Bare, expose_tools_over_mcp=True))


def test_catch_all_tool_uses_its_path():
    catch_all = CatchAll("/{tool_name}")
    assert catch_all.tool("look") == McpTool("look", "", {"type": "object", "properties": {}}, "/look")


def test_exposing_tools_twice_changes_nothing():
    server = made()
    app = exposed(server)
    maybe_auto_expose(server, app)
    assert [getattr(route, "path", None) for route in app.routes].count("/mcp") == 1
    with TestClient(app) as client:
        assert client.post("/greet", json={"name": "you"}).text == "hello you"
        assert client.get("/tools").json()[0]["name"] == "greet"


async def test_rollout_in_process_normalizes_tool_names():
    server = made()
    async with rollout(server) as attempt:
        graded = await attempt.verify(reply(call("mcp__made__greet", name="you")))
    assert graded.reward == 1.0
    assert graded.response.tool_calls[0].name == "mcp__made__greet"


@each_case(
    "response",
    [
        None,
        3,
        {},
        {"output": 3},
        {"output": [3, None, {"type": "function_call"}, {"type": "function_call", "name": 3}]},
    ],
)
async def test_malformed_response_is_rejected_by_the_route(response):
    async with serving(made()) as client:
        await client.post("/seed_session", json={"responses_create_params": {"input": []}})
        for body in ({"responses_create_params": {"input": []}, "response": response}, [response]):
            assert (await client.post("/verify", json=body)).status_code == 422
        assert (await client.post("/verify", content=b"{")).status_code == 422


async def test_rejected_seed_opens_no_session():
    async def seed_session(self, body: More) -> None:
        """Take words."""

    server = made(seed_session=seed_session)
    async with serving(server) as client:
        answer = await client.post("/seed_session", json={"words": 3})
        assert (answer.status_code, "mcp" in answer.json()) == (422, False)
        assert "mcp" in (await client.post("/seed_session", json={"words": []})).json()


async def test_row_invalid_for_the_restriction_fails_the_seed():
    def allowed(self, seed_body: More) -> list[str]:
        return seed_body.words

    async with serving(made(mcp_allowed_tools_for_session=allowed)) as client:
        assert "mcp" in (await client.post("/seed_session", json={"words": ["greet"]})).json()
        with pytest.raises(EnvironmentFailed, match="made: the row is not a More: words: Field required"):
            await client.post("/seed_session", json={})


@pytest.mark.parametrize("kind", [dict, dict[str, Any]])
async def test_restriction_may_read_the_raw_row(kind):
    seen = []

    def allowed(self, seed_body) -> None:
        seen.append(seed_body)

    allowed.__annotations__["seed_body"] = kind

    async with serving(made(mcp_allowed_tools_for_session=allowed)) as client:
        await client.post("/seed_session", json={"any": {"thing": 1}})
    assert seen == [{"any": {"thing": 1}}]


IN_A_PROCESS = """
import asyncio
import sys

import nemo_gym.process.child
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer, tool
from nemo_gym.errors import ConfigError
from nemo_gym.testing import make_server, serving
{before}

class Greeter(SimpleResourcesServer):
    @tool
    async def greet(self, name: str) -> str:
        '''Greet.'''
        return f"hello {{name}}"

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0

async def main() -> None:
    async with serving(make_server(Greeter, name="greeter", expose_tools_over_mcp={exposed})) as client:
        seeded = await client.post("/seed_session", json={{}})
        greeted = await client.post("/greet", json={{"name": "you"}})
        print(sorted(seeded.json()), greeted.text)

try:
    asyncio.run(main())
except ConfigError as error:
    print(error)
print("imported:", ["mcp"] if sys.modules.get("mcp") else [])
"""


@pytest.mark.parametrize(
    ("before", "is_exposed", "printed"),
    [
        ("", False, "[] hello you\nimported: []"),
        ("", True, "['mcp'] hello you\nimported: ['mcp']"),
        ("sys.modules['mcp'] = None", False, "[] hello you\nimported: []"),
        (
            "sys.modules['mcp'] = None",
            True,
            "greeter: expose_tools_over_mcp is true, but the MCP SDK (mcp>=1.28.1,<3) is not installed: "
            "pip install 'nemo-gym[mcp]'\nimported: []",
        ),
    ],
    ids=["off", "on", "off and missing", "on and missing"],
)
def test_sdk_is_imported_only_if_enabled(tmp_path, before, is_exposed, printed):
    file = tmp_path / "app.py"
    file.write_text(IN_A_PROCESS.format(before=before, exposed=is_exposed))
    finished = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60, check=False)
    assert finished.stdout.strip() == printed, finished.stderr
