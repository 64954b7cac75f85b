"""A published folder may use our newer names for things of its own."""

import warnings
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from nemo_gym.testing import FakeModel, make_server, reply, run
from resources_servers.gymnasium import GymnasiumServer
from responses_api_agents.simple_agent.app import SimpleAgent

CONFIG = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
ROW = {"responses_create_params": {"input": "a"}, "response": reply("b").model_dump()}


class Graded(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


# As pydantic tells authors of such folders.
warnings.filterwarnings("ignore", message="Field name .* shadows an attribute in parent")


class FieldCalledSessions(Graded):
    sessions: dict[str, Any] = Field(default_factory=dict)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
        self.sessions[request.session[SESSION_ID_KEY]] = body
        return BaseVerifyResponse(**body.model_dump(), reward=float(len(self.sessions)))


class PrivateAttributeCalledSessions(Graded):
    _sessions: dict[str, Any] = PrivateAttr(default_factory=dict)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
        self._sessions[request.session[SESSION_ID_KEY]] = body
        return BaseVerifyResponse(**body.model_dump(), reward=float(len(self._sessions)))


class AttributeMadeLater(Graded):
    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._sessions = {}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(self._sessions == {}))


class FieldCalledTools(Graded):
    tools: list[dict[str, Any]] = Field(default_factory=list)


class MethodCalledTools(Graded):
    async def tools(self, request: Request) -> list[str]:
        return ["mine"]


class ToolsOfAnotherKind(Graded):
    def tools(self) -> list[dict[str, Any]]:
        return [{"type": "function", "name": "mine"}]


class HelperThatCloses(Graded):
    closed: list[str] = Field(default_factory=list)

    def close_session(self, session_id: str, env: object = None) -> None:
        self.closed.append(session_id)

    async def _close_session(self, session_id: str) -> None:
        self.closed.append(session_id)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0 - len(self.closed))


class FieldThatCloses(Graded):
    close_session: bool = True


@pytest.mark.parametrize(
    "kind",
    [
        FieldCalledSessions, PrivateAttributeCalledSessions, AttributeMadeLater, FieldCalledTools, MethodCalledTools,
        ToolsOfAnotherKind, HelperThatCloses, FieldThatCloses,
    ],
)  # fmt: skip
def test_a_rollout_takes_its_course_beside_a_name_that_the_folder_uses_itself(kind):
    server = kind(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/seed_session", json=ROW).json() == {}
        assert client.post("/close_session").json() == {"closed": False}
        assert client.get("/tools").json() == []
        assert client.post("/verify", json=ROW).json()["reward"] == 1.0


class Closing(BaseModel):
    why: str = ""


class RoutesOfItsOwn(Graded):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/tools")(self.list_of_mine)
        app.post("/close_session")(self.close_it)
        app.post("/verify")(self.close_it)
        return app

    async def list_of_mine(self) -> list[str]:
        return ["hammer"]

    async def close_it(self, body: Closing) -> str:
        return f"closed: {body.why}"


def test_a_folders_own_route_takes_the_place_of_ours_but_not_of_a_published_one():
    client = TestClient(RoutesOfItsOwn(config=CONFIG, server_client=MagicMock(spec=ServerClient)).setup_webserver())
    assert client.get("/tools").json() == ["hammer"]
    assert client.post("/close_session", json={"why": "late"}).json() == "closed: late"
    assert client.post("/verify", json=ROW).json()["reward"] == 1.0


class ToolsOfNewerNames(Graded):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/tools")(self.list_of_mine)
        app.post("/close_session")(self.close_it)
        return app

    async def list_of_mine(self) -> list[str]:
        """What there is."""
        return ["hammer"]

    async def close_it(self, body: Closing) -> str:
        """Shut the shop."""
        return f"closed: {body.why}"


def test_a_folders_own_tools_of_newer_names_are_reached_over_mcp():
    pytest.importorskip("mcp")
    config = CONFIG.model_copy(update={"expose_tools_over_mcp": True})
    shop = ToolsOfNewerNames(config=config, server_client=MagicMock(spec=ServerClient))
    app = shop.setup_webserver()
    maybe_auto_expose(shop, app)
    with TestClient(app) as client:
        told = client.post("/seed_session", json={}).json()["mcp"]
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"accept": "application/json, text/event-stream", **told["headers"]}
        answer = client.post(told["url_path"], json=asked, headers=headers).json()
    assert [each["name"] for each in answer["result"]["tools"]] == ["tools", "close_session"]


def with_annotated(name: str, default: Any) -> type[Graded]:
    return type(
        "Annotated", (Graded,), {"__annotations__": {name: dict[str, Any]}, name: default, "__module__": __name__}
    )


def graded_by(kind: type[Graded]) -> Graded:
    server = kind(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/verify", json=ROW).json()["reward"] == 1.0
    return server


PRIVATE = ["_telemetry", "_siblings", "_life", "_processes", "_cookie_secret", "_secret_values"]
HOOKS = ["startup", "aclose", "background_tasks", "close_owned", "session_beginnings", "new_app"]


@pytest.mark.parametrize("name", PRIVATE)
def test_private_attributes_are_the_folders_own(name):
    assert getattr(graded_by(with_annotated(name, PrivateAttr(default_factory=dict))), name) == {}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.filterwarnings("ignore:Field name")
def test_a_field_that_is_called_as_a_hook_of_ours_is_no_hook(name):
    assert getattr(graded_by(with_annotated(name, Field(default_factory=dict))), name) == {}


class ToolsCalledAsHooks(Graded):
    async def startup(self, request: Request, body: dict[str, Any]) -> str:
        return "started"

    async def aclose(self, request: Request) -> str:
        return "closed"

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/startup")(self.startup)
        app.post("/aclose")(self.aclose)
        return app


def test_tools_may_be_called_as_our_hooks_are():
    client = TestClient(
        ToolsCalledAsHooks(config=CONFIG, server_client=MagicMock(spec=ServerClient)).setup_webserver()
    )
    with client:
        assert (client.post("/startup", json={}).json(), client.post("/aclose").json()) == ("started", "closed")


class RegistersItself(Graded):
    calls: list[str] = Field(default_factory=list)

    async def startup(self) -> None:
        self.calls.append("startup")

    def aclose(self) -> None:
        self.calls.append("aclose")

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.on_startup.append(self.startup)
        app.router.on_shutdown.append(self.aclose)
        return app


def test_a_hook_that_the_folder_registers_itself_is_called_once():
    assert graded_by(RegistersItself).calls == ["startup", "aclose"]


def test_a_client_may_be_constructed_without_anything():
    assert isinstance(ServerClient.model_construct(), ServerClient)


class Echo(SimpleResponsesAPIAgent):
    async def responses(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        return dict(request.path_params)

    async def run(self, body: dict[str, Any]) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("segment", ["", "/training-token-capture"])
def test_an_agents_prefixed_route_is_there_and_has_the_rollouts_id_as_a_path_parameter(segment):
    config = BaseResponsesAPIAgentConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    app = Echo(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver()
    answer = TestClient(app).post(f"/ng-rollout/1-0{segment}/v1/responses", json={})
    assert answer.json() == {"rollout_id": "1-0"}
    assert f"/ng-rollout/{{rollout_id}}{segment}/v1/responses" in [getattr(route, "path", "") for route in app.routes]


class HelpersOfItsOwn(SimpleAgent):
    """Has helpers called as functions of ours are."""

    def refuse(self) -> None:
        raise AssertionError("this is the folder's, and nobody else calls it")

    _answer = _answered = _call = _close = _close_surely = _tools_of_server = _verified = refuse


async def test_a_subclass_of_the_plain_agent_may_have_helpers_of_any_name():
    refs = {
        "resources_server": {"type": "resources_servers", "name": "graded"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    servers = [make_server(Graded, name="graded")]
    agent = make_server(HelpersOfItsOwn, name="agent", model=FakeModel(["Hello."]), servers=servers, **refs)
    assert (await run(agent, responses_create_params={"input": "Hi."})).reward == 1.0


class GameWithHelpersOfItsOwn(GymnasiumServer):
    """The same in a game."""

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str, dict[str, Any]]:
        return "Say anything.", {}

    async def step(self, action: Any, metadata: dict[str, Any], session_id: str) -> tuple[Any, ...]:
        return "Thanks.", 1.0, True, False, {}

    def refuse(self) -> None:
        raise AssertionError("this is the folder's, and nobody else calls it")

    _answer = _arguments = _check_under_way = _progress = _reset_answer = _step_answer = refuse


def test_a_published_game_may_have_helpers_of_any_name():
    server = GameWithHelpersOfItsOwn(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        answers = [client.post(path, json=ROW).json() for path in ("/reset", "/step", "/verify")]
    assert (answers[0]["observation"], answers[1]["reward"], answers[2]["reward"]) == ("Say anything.", 1.0, 1.0)


class GameWithRoutesOfItsOwn(GameWithHelpersOfItsOwn):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for path in ("/close", "/verify", "/seed_session"):
            app.post(path)(self.tell)
        return app

    async def tell(self, request: Request) -> dict[str, str]:
        return {"told by": f"the folder's own {request.url.path}"}


@pytest.mark.parametrize("path", ["/close", "/verify", "/seed_session"])
def test_a_published_game_may_have_routes_that_ours_have_by_themselves(path):
    server = GameWithRoutesOfItsOwn(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post(path, json=ROW).json() == {"told by": f"the folder's own {path}"}
