from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY, NG_NO_PERSIST_KEY, NG_TERMINAL_KEY
from nemo_gym.server_utils import ServerClient
from responses_api_agents.sentinel_agent.app import SentinelAgent, SentinelAgentConfig

RESPONSE = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@pytest.fixture
def client() -> TestClient:
    config = SentinelAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        model_server=ModelServerRef(type="responses_api_models", name="m"),
    )
    server = SentinelAgent(config=config, server_client=MagicMock(spec=ServerClient))
    answer = AsyncMock()
    answer.ok = True
    answer.read = AsyncMock(return_value=orjson.dumps(RESPONSE))
    server.server_client.post.return_value = answer
    return TestClient(server.setup_webserver())


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("good", {"reward": 1.0, "run_attempts": 1}),
        ("good_in_the_end", {"reward": 1.0, "run_attempts": 3}),
        ("masked", {"reward": 1.0, "mask_sample": True}),
        ("bad", {"reward": 0.0, NG_FAILURE_CLASS_KEY: "remote_agent_error", "mask_sample": True}),
        ("hopeless", {NG_FAILURE_CLASS_KEY: "remote_agent_error", NG_TERMINAL_KEY: True}),
        ("passing", {NG_NO_PERSIST_KEY: True}),
    ],
)
def test_sentinels(client: TestClient, plan: str, expected: dict) -> None:
    result = client.post("/run", json={"responses_create_params": {"input": "hi"}, "plan": plan}).json()
    assert expected.items() <= result.items()
    assert (NG_FAILURE_CLASS_KEY in result) == (NG_FAILURE_CLASS_KEY in expected)
