"""A published folder may use our newer names for something else."""

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
from tests.each_case import each_case

CONFIG = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
ROW = {"responses_create_params": {"input": "a"}, "response": reply("b").model_dump()}


class Graded(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


# Pydantic warns the authors of such folders.
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


@each_case(
    "kind",
    [
        FieldCalledSessions, PrivateAttributeCalledSessions, AttributeMadeLater, FieldCalledTools, MethodCalledTools,
        ToolsOfAnotherKind, HelperThatCloses, FieldThatCloses,
    ],
)  # fmt: skip
def test_rollout_runs_despite_a_clashing_name(kind):
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


def test_own_route_replaces_only_our_newer_routes():
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
        """List what is here."""
        return ["hammer"]

    async def close_it(self, body: Closing) -> str:
        """Shut the shop."""
        return f"closed: {body.why}"


def test_own_tools_with_newer_names_work_over_mcp():
    pytest.importorskip("mcp")
    config = CONFIG.model_copy(update={"expose_tools_over_mcp": True})
    shop = ToolsOfNewerNames(config=config, server_client=MagicMock(spec=ServerClient))
    app = shop.setup_webserver()
    maybe_auto_expose(shop, app)
    with TestClient(app) as client:
        metadata = client.post("/seed_session", json={}).json()["mcp"]
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"accept": "application/json, text/event-stream", **metadata["headers"]}
        answer = client.post(metadata["url_path"], json=request, headers=headers).json()
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


@each_case("name", PRIVATE)
def test_private_attributes_belong_to_the_folder(name):
    assert getattr(graded_by(with_annotated(name, PrivateAttr(default_factory=dict))), name) == {}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.filterwarnings("ignore:Field name")
def test_field_with_a_hooks_name_is_not_called(name):
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


def test_tools_may_have_the_names_of_hooks():
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


def test_hook_registered_by_the_folder_is_called_once():
    assert graded_by(RegistersItself).calls == ["startup", "aclose"]


def test_client_may_be_constructed_without_arguments():
    assert isinstance(ServerClient.model_construct(), ServerClient)


class Echo(SimpleResponsesAPIAgent):
    async def responses(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        return dict(request.path_params)

    async def run(self, body: dict[str, Any]) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("segment", ["", "/training-token-capture"])
def test_prefixed_agent_route_has_rollout_id_as_parameter(segment):
    config = BaseResponsesAPIAgentConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    app = Echo(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver()
    answer = TestClient(app).post(f"/ng-rollout/1-0{segment}/v1/responses", json={})
    assert answer.json() == {"rollout_id": "1-0"}
    assert f"/ng-rollout/{{rollout_id}}{segment}/v1/responses" in [getattr(route, "path", "") for route in app.routes]


class HelpersOfItsOwn(SimpleAgent):
    """A server whose methods have the names of our functions."""

    def refuse(self) -> None:
        raise AssertionError("only the folder itself may call this")

    _answer = _answered = _call = _close = _close_surely = _tools_of_server = _verified = refuse


async def test_agent_subclass_may_have_helpers_of_any_name():
    refs = {
        "resources_server": {"type": "resources_servers", "name": "graded"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    servers = [make_server(Graded, name="graded")]
    agent = make_server(HelpersOfItsOwn, name="agent", model=FakeModel(["Hello."]), servers=servers, **refs)
    assert (await run(agent, responses_create_params={"input": "Hi."})).reward == 1.0


class GameWithHelpersOfItsOwn(GymnasiumServer):
    """A game with helpers that have the names of our functions."""

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str, dict[str, Any]]:
        return "Say anything.", {}

    async def step(self, action: Any, metadata: dict[str, Any], session_id: str) -> tuple[Any, ...]:
        return "Thanks.", 1.0, True, False, {}

    def refuse(self) -> None:
        raise AssertionError("only the folder itself may call this")

    _answer = _arguments = _check_is_running = _progress = _reset_answer = _step_answer = refuse


def test_published_game_may_have_helpers_of_any_name():
    server = GameWithHelpersOfItsOwn(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        answers = [client.post(path, json=ROW).json() for path in ("/reset", "/step", "/verify")]
    assert (answers[0]["observation"], answers[1]["reward"], answers[2]["reward"]) == ("Say anything.", 1.0, 1.0)


class GameWithRoutesOfItsOwn(GameWithHelpersOfItsOwn):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for path in ("/close", "/verify", "/seed_session"):
            app.post(path)(self.own_route)
        return app

    async def own_route(self, request: Request) -> dict[str, str]:
        return {"answered by": f"the folder's own {request.url.path}"}


@each_case("path", ["/close", "/verify", "/seed_session"])
def test_published_game_may_define_our_routes(path):
    server = GameWithRoutesOfItsOwn(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post(path, json=ROW).json() == {"answered by": f"the folder's own {path}"}


class OwnSettingsConfig(BaseResourcesServerConfig):
    workers: list[str] = Field(default_factory=list)
    max_requests_in_flight: str = "few"
    blocking_threads: str = "all"
    session_idle_s: str = "never"
    group_verification: bool = True


class OwnSettings(Graded):
    config: OwnSettingsConfig

    async def seed_session(self, request: Request) -> None:
        assert self.config.max_requests_in_flight == "many"


def test_declared_fields_of_a_config_class_are_the_folders_own():
    config = OwnSettingsConfig(host="0.0.0.0", port=8080, entrypoint="", name="", max_requests_in_flight="many")
    server = OwnSettings(config=config, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/seed_session", json=ROW).status_code == 200
        assert client.post("/verify", json=ROW).json()["reward"] == 1.0
