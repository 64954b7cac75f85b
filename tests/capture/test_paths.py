"""Tests of the paths of calls: prefixed with the rollout if capture is enabled, plain otherwise."""

import asyncio
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest
from fastapi import Request
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    ServerClient,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT
from nemo_gym.global_config import OBSERVABILITY_ENABLED_KEY_NAME, TOKEN_ID_CAPTURE_BLOCK
from nemo_gym.rollout_correlation import (
    ROLLOUT_ID_PATTERN,
    RolloutContextMiddleware,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
)
from tests.each_case import each_case

ON = {"observability_enabled": True, "model_call_capture_dir": "/capture"}
ROW = {"responses_create_params": {"input": "hi"}, "_ng_task_index": 4, "_ng_rollout_index": 2}
BLOCKS = {
    "model": {"responses_api_models": {"m": {"host": "127.0.0.1", "port": 1}}},
    "task": {"resources_servers": {"t": {"host": "127.0.0.1", "port": 2}}},
    "agent": {"responses_api_agents": {"a": {"host": "127.0.0.1", "port": 3}}},
}


class RunRequest(BaseRunRequest, extra="allow"):
    pass


class Agent(SimpleResponsesAPIAgent):
    config: BaseResponsesAPIAgentConfig

    async def responses(self, request: Request, body: dict) -> dict:
        return {
            "id": request.path_params.get("rollout_id"),
            "path": request.url.path,
            "model_path": self.url_path_for_request("/v1/responses", request),
        }

    async def run(self, body: RunRequest) -> dict:
        return {}


def agent_of(client):
    settings = BaseResponsesAPIAgentConfig(host="0.0.0.0", port=8080, entrypoint="", name="agent")
    return Agent(config=settings, server_client=client)


def agent_with(config):
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = config
    return agent_of(client)


def request_of(**scope):
    return Request({"type": "http", "path": "/v1/responses", "headers": [], **scope})


@pytest.mark.parametrize("body", [ROW, RunRequest.model_validate(ROW)])
def test_agent_paths_are_prefixed_with_capture(body):
    agent = agent_with({**BLOCKS, **ON})
    assert agent.rollout_id_from_run(body) == "4-2"
    assert agent.url_path_for_run("/v1/responses", body) == "/ng-rollout/4-2/v1/responses"
    assert agent.base_url_for_run("http://h:1/", body) == "http://h:1/ng-rollout/4-2"
    assert agent._capture_correlation_enabled()
    assert agent._model_call_capture_enabled()


@each_case("config", [{}, {"observability_enabled": False}, OmegaConf.create({}), MagicMock()])
def test_agent_paths_are_plain_without_capture(config):
    agent = agent_with(config)
    assert agent.rollout_id_from_run(ROW) is None
    assert agent.url_path_for_run("/v1/responses", ROW) == "/v1/responses"
    assert agent.base_url_for_run("http://h:1", ROW) == "http://h:1"
    assert not agent._capture_correlation_enabled()
    assert not agent._token_id_capture_enabled()


def test_client_without_configuration_adds_no_prefix():
    assert agent_of(MagicMock(spec=ServerClient)).url_path_for_run("/v1/responses", ROW) == "/v1/responses"


def test_run_takes_rollout_from_context():
    agent = agent_with(ON)
    with rollout_context("9-0"):
        assert agent.url_path_for_run("/v1/responses", {}) == "/ng-rollout/9-0/v1/responses"
    assert agent.url_path_for_run("/v1/responses", {}) == "/v1/responses"


TOKENS = "/ng-rollout/4-2/training-token-capture/v1/responses"


@each_case("config", [{}, ON, MagicMock()])
@each_case(
    ("request_", "path"),
    [
        (None, "/v1/responses"),
        (request_of(), "/v1/responses"),
        (request_of(path="/ng-rollout/4-2/v1/responses"), "/v1/responses"),
        (MagicMock(), "/v1/responses"),
        (SimpleNamespace(path_params={}), "/v1/responses"),
        (SimpleNamespace(path_params={"rollout_id": "4-2"}), "/ng-rollout/4-2/v1/responses"),
        (request_of(path_params={"rollout_id": "4-2"}), "/ng-rollout/4-2/v1/responses"),
        (request_of(path=TOKENS, path_params={"rollout_id": "4-2"}), TOKENS),
    ],
)
def test_request_alone_decides_its_path(config, request_, path):
    with rollout_context("9-0"):
        assert agent_with(config).url_path_for_request("/v1/responses", request_) == path


@each_case(
    ("block", "own", "prefix"),
    [
        ({"enabled": True, "all_agents": True}, False, "/ng-rollout/4-2/training-token-capture"),
        ({"enabled": True}, True, "/ng-rollout/4-2/training-token-capture"),
        ({"enabled": True}, False, ""),
        ({"enabled": False, "all_agents": True}, True, ""),
        ({"all_agents": True}, True, ""),
        (MagicMock(), True, ""),
        (True, True, ""),
    ],
)
def test_token_capture_adds_its_segment(block, own, prefix):
    agent = agent_with({"token_id_capture": block})
    agent.config.token_id_capture = own
    assert agent._token_id_capture_enabled() is bool(prefix)
    assert agent.url_path_for_run("/v1/responses", ROW) == f"{prefix}/v1/responses"
    assert agent.base_url_for_run("http://h:1", ROW) == f"http://h:1{prefix}"


@pytest.mark.parametrize("segment", ["", "/training-token-capture"])
def test_handler_sees_rollout_id_and_full_path(segment):
    path = f"/ng-rollout/4-2{segment}/v1/responses"
    with TestClient(agent_with({}).setup_webserver()) as client:
        prefixed = client.post(path, json={"input": "hi"}).json()
        plain = client.post("/v1/responses", json={"input": "hi"}).json()
    assert prefixed == {"id": "4-2", "path": path, "model_path": path}
    assert plain == {"id": None, "path": "/v1/responses", "model_path": "/v1/responses"}


@pytest.mark.parametrize("config", [ON, {}])
def test_model_server_url_is_resolved_by_name(config):
    client = ServerClient(
        head_server_config=BaseServerConfig(host="h", port=0),
        global_config_dict=OmegaConf.create({**BLOCKS, **config}),
    )
    agent = agent_of(client)
    assert agent.resolve_model_base_url("model") == "http://127.0.0.1:1/v1"
    assert agent.resolve_model_base_url("model", "4-2") == "http://127.0.0.1:1/ng-rollout/4-2/v1"
    with pytest.raises(Exception, match="no server is named 'modle'; there are: agent, model, task"):
        agent.resolve_model_base_url("modle")


def test_published_model_server_lookup_can_be_replaced():
    agent = agent_with({})
    agent.server_client._build_server_base_url = lambda settings: f"http://{settings['host']}:{settings['port']}"
    with patch(
        "nemo_gym.base_responses_api_agent.get_first_server_config_dict", return_value={"host": "x", "port": 5}
    ):
        assert agent.resolve_model_base_url("model") == "http://x:5/v1"


async def test_tools_see_their_path_without_prefix():
    class Room(SimpleResourcesServer):
        def setup_webserver(self):
            app = super().setup_webserver()
            app.post("/{tool}")(self.use)
            return app

        async def use(self, request: Request, tool: str) -> str:
            return f"{tool} {request.url.path}"

        async def verify(self, body: BaseVerifyRequest) -> float:
            return 0.0

    settings = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="room")
    app = Room(config=settings, server_client=MagicMock(spec=ServerClient)).setup_webserver()
    with TestClient(app) as client:
        assert client.post("/ng-rollout/4-2/look").json() == "look /look"


@each_case(
    ("body", "rollout_id"),
    [
        (ROW, "4-2"),
        ({**ROW, "_ng_attempt_index": 1}, "4-2-a1"),
        ({**ROW, "_ng_rollout_id": "mine"}, "mine"),
        ({**ROW, "_ng_rollout_id": "../mine"}, None),
        (BaseRunRequest.model_validate(ROW), None),
        ({}, None),
        (None, None),
    ],
)
def test_run_request_may_carry_a_rollout_id(body, rollout_id):
    assert maybe_rollout_id_from_run_body(body) == rollout_id


def test_published_correlation_names_are_in_use():
    with rollout_context("1-1"):
        assert current_rollout_id() == "1-1"
    assert ROLLOUT_ID_PATTERN.pattern == "^[A-Za-z0-9][A-Za-z0-9._-]*$"
    assert (ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT) == ("ng-rollout", "training-token-capture")
    assert (OBSERVABILITY_ENABLED_KEY_NAME, TOKEN_ID_CAPTURE_BLOCK) == ("observability_enabled", "token_id_capture")
    assert RolloutContextMiddleware.__module__ == "nemo_gym.web.middleware"


class PathRecorder:
    """A server that records the path of each request and closes the connection."""

    async def __aenter__(self):
        self.lines = []
        self.server = await asyncio.start_server(self._note, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _note(self, reader, writer):
        self.lines.append((await reader.readline()).split()[1].decode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@each_case("config", [ON, {}])
@each_case(
    ("server", "path", "body", "context", "prefix"),
    [
        ("model", "/v1/responses", {}, "4-2", "/ng-rollout/4-2"),
        ("model", "/v1/chat/completions", {}, "4-2", "/ng-rollout/4-2"),
        ("model", "/v1/messages", {}, "4-2", "/ng-rollout/4-2"),
        ("model", "/v1/models", {}, "4-2", ""),
        ("model", "/v1/responses", {}, None, ""),
        ("model", "/ng-rollout/5-5/v1/responses", {}, "4-2", ""),
        ("task", "/verify", ROW, None, "/ng-rollout/4-2"),
        ("task", "/verify", ROW, "9-9", "/ng-rollout/9-9"),
        ("task", "/look", {}, "4-2", "/ng-rollout/4-2"),
        ("task", "/look", ROW, None, ""),
        ("agent", "/run", ROW, "4-2", ""),
    ],
)
async def test_client_prefixes_only_calls_of_rollouts(config, server, path, body, context, prefix):
    async with PathRecorder() as recorder:
        blocks = {
            name: {tier: {"x": {"host": "127.0.0.1", "port": recorder.port}} for tier in block}
            for name, block in BLOCKS.items()
        }
        client = ServerClient(
            head_server_config=BaseServerConfig(host="h", port=0),
            global_config_dict=OmegaConf.create({**blocks, **config}),
        )
        with rollout_context(context):
            await client.post(server, path, json=body)
        await client.aclose()
    assert recorder.lines == [f"{prefix if config else ''}{path}"]
