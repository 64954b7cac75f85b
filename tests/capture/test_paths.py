"""Tests of the paths of calls: prefixed with the rollout if capture is enabled, plain otherwise."""

import asyncio
from unittest.mock import MagicMock, patch

import pytest
from fastapi import Request
from omegaconf import OmegaConf

from nemo_gym import BaseResponsesAPIAgentConfig, BaseRunRequest, ServerClient, SimpleResponsesAPIAgent
from nemo_gym.config.settings import BaseServerConfig
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

    async def responses(self, body): ...

    async def run(self, body): ...


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
    request = request_of(path_params={"rollout_id": "4-2"})
    assert agent.url_path_for_request("/v1/responses", request) == "/ng-rollout/4-2/v1/responses"
    assert agent._capture_correlation_enabled()
    assert agent._model_call_capture_enabled()


@each_case("config", [{}, {"observability_enabled": False}, OmegaConf.create({}), MagicMock()])
def test_agent_paths_are_plain_without_capture(config):
    agent = agent_with(config)
    assert agent.rollout_id_from_run(ROW) is None
    assert agent.url_path_for_run("/v1/responses", ROW) == "/v1/responses"
    assert agent.base_url_for_run("http://h:1", ROW) == "http://h:1"
    assert (
        agent.url_path_for_request("/v1/responses", request_of(path_params={"rollout_id": "4-2"})) == "/v1/responses"
    )
    assert not agent._capture_correlation_enabled()
    assert not agent._token_id_capture_enabled()


def test_client_without_configuration_adds_no_prefix():
    assert agent_of(MagicMock(spec=ServerClient)).url_path_for_run("/v1/responses", ROW) == "/v1/responses"


def test_request_takes_rollout_from_context():
    agent = agent_with(ON)
    with rollout_context("9-0"):
        assert agent.url_path_for_request("/v1/responses", request_of()) == "/ng-rollout/9-0/v1/responses"
        assert agent.url_path_for_run("/v1/responses", {}) == "/ng-rollout/9-0/v1/responses"
    assert agent.url_path_for_request("/v1/responses", request_of()) == "/v1/responses"


@pytest.mark.parametrize(("config", "prefix"), [(ON, "/ng-rollout/4-2"), ({}, "")])
def test_model_server_url_is_resolved_by_name(config, prefix):
    client = ServerClient(
        head_server_config=BaseServerConfig(host="h", port=0),
        global_config_dict=OmegaConf.create({**BLOCKS, **config}),
    )
    agent = agent_of(client)
    assert agent.resolve_model_base_url("model") == "http://127.0.0.1:1/v1"
    assert agent.resolve_model_base_url("model", "4-2") == f"http://127.0.0.1:1{prefix}/v1"
    with pytest.raises(Exception, match="no server is named 'modle'; there are: agent, model, task"):
        agent.resolve_model_base_url("modle")


def test_published_model_server_lookup_can_be_replaced():
    agent = agent_with({})
    agent.server_client._build_server_base_url = lambda settings: f"http://{settings['host']}:{settings['port']}"
    with patch(
        "nemo_gym.base_responses_api_agent.get_first_server_config_dict", return_value={"host": "x", "port": 5}
    ):
        assert agent.resolve_model_base_url("model") == "http://x:5/v1"


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
