"""Servers in the published style: mock clients, routes, graded rows, responses."""

from __future__ import annotations

from unittest.mock import AsyncMock, MagicMock, patch

import aiohttp
import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import ConfigDict, ValidationError

from nemo_gym import base_resources_server, base_responses_api_agent, base_responses_api_model, server_utils
from nemo_gym.global_config import DictConfig
from tests.each_case import each_case
from tests.published.interface.plain_servers import ADDRESS, RESPONSE, Agent, Environment, Model, build


@each_case("knows", ["nothing", "a mock", "no server"])
def test_client_may_be_a_bare_mock(knows):
    agent = build(Agent, base_responses_api_agent.BaseResponsesAPIAgentConfig)
    assert all(isinstance(getattr(agent.server_client, name), AsyncMock) for name in ("get", "post", "request"))
    if knows == "nothing":
        with pytest.raises(AttributeError):
            _ = agent.server_client.global_config_dict
    else:
        agent.server_client.global_config_dict = MagicMock() if knows == "a mock" else DictConfig({})
    agent.server_client.post.return_value.read = AsyncMock(return_value=orjson.dumps(RESPONSE))
    answer = TestClient(agent.setup_webserver()).post("/v1/responses", json={"input": "hi"})
    assert answer.json()["id"] == "r"
    assert agent.server_client.post.await_args.kwargs == {"server_name": "m", "url_path": "/v1/responses"}
    model = Model(
        config=base_responses_api_model.BaseResponsesAPIModelConfig(**ADDRESS), server_client=agent.server_client
    )
    assert TestClient(model.setup_webserver()).post("/v1/responses", json={"input": "hi"}).status_code == 200


def test_base_url_needs_no_address_book():
    block = {"host": "10.0.0.7", "port": 81}
    for client in (MagicMock(spec=server_utils.ServerClient), object.__new__(server_utils.ServerClient)):
        assert server_utils.ServerClient._build_server_base_url(client, block) == "http://10.0.0.7:81"


class PreparedEnvironment(Environment):
    def model_post_init(self, context):
        raise AssertionError("the preparation is patched")


class PreparedAgent(Agent):
    def model_post_init(self, context):
        raise AssertionError("the preparation is patched")


@each_case(
    ("kind", "config", "path"),
    [
        (PreparedEnvironment, base_resources_server.BaseResourcesServerConfig, "/close_session"),
        (PreparedAgent, base_responses_api_agent.BaseResponsesAPIAgentConfig, "/v1/agent_sessions/close"),
    ],
)
def test_preparation_of_a_server_can_be_patched(kind, config, path):
    with patch.object(kind, "model_post_init", lambda self, context: None):
        server = build(kind, config)
    with TestClient(server.setup_webserver()) as client:
        assert (
            client.post(path, json={"agent_session_id": "a", "episode_id": {"rollout_id": "0-0"}}).json()["closed"]
            is False
        )


@each_case(
    ("kind", "config", "routes"),
    [
        (
            Environment,
            base_resources_server.BaseResourcesServerConfig,
            {"POST /seed_session", "POST /verify", "POST /aggregate_metrics", "GET /reverify_mode",
             "POST /close_session"},
        ),
        (
            Agent,
            base_responses_api_agent.BaseResponsesAPIAgentConfig,
            {"POST /v1/responses", "POST /run", "POST /aggregate_metrics"},
        ),
        (
            Model,
            base_responses_api_model.BaseResponsesAPIModelConfig,
            {"POST /v1/responses", "POST /v1/chat/completions", "POST /v1/messages"},
        ),
    ],
)  # fmt: skip
def test_each_tier_has_its_routes(kind, config, routes):
    app = build(kind, config).setup_webserver()
    found = {f"{method} {route.path}" for route in app.routes for method in route.methods or ()}
    assert routes <= found
    client = TestClient(app)
    for prefix in ("/ng-rollout/3-1", "/ng-rollout/3-1/training-token-capture"):
        for route in routes:
            method, _, path = route.partition(" ")
            # The body may be rejected, but the route exists.
            assert client.request(method, f"{prefix}{path}").status_code in {200, 400, 422}


def test_server_can_be_assembled_by_hand(monkeypatch):
    block = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "domain": "other"}
    config = DictConfig({"mine": {"resources_servers": {"plain": {**block, "port": "${free_port}"}}}, "free_port": 7})
    monkeypatch.setenv("NEMO_GYM_CONFIG_PATH", "mine")
    monkeypatch.setattr("nemo_gym.server_utils.get_global_config_dict", lambda: config)
    read = Environment.load_config_from_global_config()
    assert (type(read), read.name, read.port) == (base_resources_server.BaseResourcesServerConfig, "mine", 7)
    server = Environment(config=read, server_client=MagicMock(spec=server_utils.ServerClient))
    app = server.setup_webserver()
    server.set_ulimit()
    server.prefix_server_logs()
    server.setup_liveness(app)
    server.setup_session_middleware(app)
    server.setup_exception_middleware(app)
    server.setup_profiling(app, server_utils.ProfilingMiddlewareConfig())
    answer = TestClient(app).get("/")
    assert answer.json() == {"status": "ok"}
    assert [*answer.cookies] == ["Environment___mine"]


class Open(base_resources_server.BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


def test_four_tool_names_are_reserved_over_mcp():
    names = {"verify", "seed_session", "aggregate_metrics", "mcp"}
    assert names == base_resources_server.RESERVED_MCP_TOOL_NAMES


def test_graded_row_needs_reward_and_drops_extra_fields():
    row = {"responses_create_params": {"input": "hi"}, "response": RESPONSE, "spam": 1}
    assert "spam" not in base_resources_server.BaseRunRequest.model_validate(row).model_dump()
    assert "spam" not in base_resources_server.BaseVerifyRequest.model_validate(row).model_dump()
    with pytest.raises(ValidationError, match="reward"):
        base_resources_server.BaseVerifyResponse.model_validate(row)
    graded = Open.model_validate({**row, "reward": 0.5})
    assert (graded.reward, graded.model_dump()["spam"]) == (0.5, 1)
    orjson.dumps(graded.model_dump())
    with pytest.raises(ValidationError, match="reward_components"):
        base_resources_server.BaseMultiRewardVerifyResponse.model_validate({**row, "reward": 0.5})
    several = {**row, "reward": 0.5, "reward_components": {"form": 1, "content": 0.0}}
    graded = base_resources_server.BaseMultiRewardVerifyResponse.model_validate(several)
    assert graded.reward_components == {"form": 1.0, "content": 0.0}


def test_reverify_mode_belongs_to_the_config_class():
    class Stateless(base_resources_server.BaseResourcesServerConfig):
        REVERIFY_MODE = base_resources_server.ReverifyMode.STATELESS

    assert Stateless(**ADDRESS).REVERIFY_MODE == "stateless"
    assert base_resources_server.BaseResourcesServerConfig(**ADDRESS).REVERIFY_MODE == "unknown"
    assert "REVERIFY_MODE" not in Stateless(**ADDRESS).model_dump()


async def test_raise_for_status_keeps_the_body():
    bad = MagicMock(ok=False)
    bad.content.read = AsyncMock(return_value=b"no such luck")
    bad.raise_for_status.side_effect = aiohttp.ClientResponseError(MagicMock(), (), status=503)
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await server_utils.raise_for_status(bad)
    assert (raised.value.status, raised.value.response_content) == (503, b"no such luck")
    await server_utils.raise_for_status(MagicMock(spec=["ok"], ok=True))


async def test_response_json_needs_only_read():
    answer = MagicMock(spec=["read"], read=AsyncMock(return_value=b'{"a": [1, null]}'))
    assert await server_utils.get_response_json(answer) == {"a": [1, None]}
