import json
from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import AggregateMetricsRequest
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.halved_agent.app import BriefAgent, HalvedAgentConfig
from responses_api_agents.simple_agent.app import SimpleAgentRunRequest


def make_agent() -> BriefAgent:
    config = HalvedAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="halved",
        resources_server=ResourcesServerRef(type="resources_servers", name="rs"),
        model_server=ModelServerRef(type="responses_api_models", name="m"),
    )
    return BriefAgent(config=config, server_client=MagicMock(spec=ServerClient))


def mocked(content: dict) -> AsyncMock:
    mock = AsyncMock()
    mock.ok = True
    mock.read = AsyncMock(return_value=json.dumps(content).encode())
    mock.cookies = {}
    return mock


async def test_metrics() -> None:
    agent = make_agent()
    agent.server_client.post = AsyncMock(return_value=mocked({"key_metrics": {"mean/reward": 1}}))
    metrics = await agent.aggregate_metrics(AggregateMetricsRequest(verify_responses=[]))
    assert metrics.key_metrics == {"mean/reward": 1, "factor": 0.5}


def test_an_answer_of_the_body_alone() -> None:
    agent = make_agent()
    response = {
        "id": "r",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    agent.server_client.post = AsyncMock(return_value=mocked(response))
    res = TestClient(agent.setup_webserver()).post("/v1/responses", json={"input": "Hi."})
    assert (res.status_code, res.json()["id"]) == (200, "r")


async def test_run() -> None:
    agent = make_agent()
    row = {"responses_create_params": {"input": "Hi."}, "uuid": "u"}
    response = {
        "id": "r",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    agent.server_client.post = AsyncMock(
        side_effect=[mocked({}), mocked(response), mocked({**row, "response": response, "reward": 1.0})]
    )
    result = await agent.run(MagicMock(cookies={}), SimpleAgentRunRequest(**row))
    assert (result.reward, result.whole_reward, result.uuid) == (0.5, 1.0, "u")
