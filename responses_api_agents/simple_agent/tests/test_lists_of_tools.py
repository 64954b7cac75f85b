"""Resources servers with another list of tools than ours, or with none."""

from typing import Any

import pytest
from fastapi import FastAPI, Response

from nemo_gym.testing import make_server, run
from responses_api_agents.simple_agent.tests.arena import Arena, agent_on


class WithoutList(Arena):
    """As a server that is not built on the base class: it has no list of tools."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/tools"]
        return app


class WithAnotherAnswer(WithoutList):
    """As a server that answers whatever it is asked for."""

    is_page: bool = True

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/{path}")
        async def anything(path: str) -> Response:
            return Response(f"<h1>Here is no {path}</h1>" if self.is_page else '{"tools": []}')

        return app


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(WithoutList, {}), (WithAnotherAnswer, {}), (WithAnotherAnswer, {"is_page": False})],
)
async def test_a_server_without_a_list_of_tools_has_none(kind, fields):
    arena = make_server(kind, name="arena", cookies_seen=[], rollouts_seen=[], **fields)
    agent = agent_on(arena, "Done.")
    assert (await run(agent)).reward == 0.0
    assert agent.server_client._connections.model.requests[0]["tools"] == []


class WithListOfItsOwn(WithoutList):
    """As a server that answers `GET /tools` in its own way, without a word on their order."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/tools")
        async def tools() -> list[dict[str, Any]]:
            return [each.definition for each in self.tools()]

        return app


async def test_a_list_of_tools_need_not_tell_which_are_independent():
    arena = make_server(WithListOfItsOwn, name="arena", cookies_seen=[], rollouts_seen=[])
    agent = agent_on(arena, "Done.")
    assert (await run(agent)).reward == 0.0
    assert agent.server_client._connections.model.requests[0]["tools"] != []
