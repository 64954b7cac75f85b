"""Resources servers without a tool list, or with a different one than ours."""

import pytest
from fastapi import FastAPI, Response

from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import make_server, run
from responses_api_agents.simple_agent.tests.arena import Arena, agent_on


class WithoutList(Arena):
    """A server without our base class and therefore without a tool list."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/tools"]
        return app


class WithAnotherAnswer(WithoutList):
    """A server with a catch-all route."""

    is_page: bool = True

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/{path}")
        async def anything(path: str) -> Response:
            return Response(f"<h1>Here is no {path}</h1>" if self.is_page else '{"tools": []}')

        return app


@pytest.mark.parametrize(
    ("kind", "fields"), [(WithoutList, {}), (WithAnotherAnswer, {}), (WithAnotherAnswer, {"is_page": False})]
)
async def test_server_without_tool_list_has_no_tools(kind, fields):
    arena = make_server(kind, name="arena", cookies_seen=[], rollouts_seen=[], **fields)
    agent = agent_on(arena, "Done.")
    assert (await run(agent)).reward == 0.0
    assert agent.server_client._connections.model.requests[0]["tools"] == []


class WithListOfItsOwn(WithoutList):
    """A server with a different `/tools` route, which does not send the header about independent tools."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/tools")
        async def tools() -> list[JsonObject]:
            return [each.definition for each in self.tools()]

        return app


async def test_tool_list_without_independence_header_is_used():
    arena = make_server(WithListOfItsOwn, name="arena", cookies_seen=[], rollouts_seen=[])
    agent = agent_on(arena, "Done.")
    assert (await run(agent)).reward == 0.0
    assert agent.server_client._connections.model.requests[0]["tools"] != []
