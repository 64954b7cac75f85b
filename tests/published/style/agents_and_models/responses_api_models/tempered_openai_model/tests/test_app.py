from unittest.mock import MagicMock

from app import TemperedOpenAIModel, TemperedOpenAIModelConfig
from fastapi.testclient import TestClient
from pytest import MonkeyPatch

from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import ServerClient

ANSWER = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "something_new": 1,
}


def test_the_temperature_is_bounded(monkeypatch: MonkeyPatch) -> None:
    asked = []

    async def create_response(self, **kwargs):
        asked.append(kwargs)
        return ANSWER

    monkeypatch.setattr(NeMoGymAsyncOpenAI, "create_response", create_response)
    config = TemperedOpenAIModelConfig(
        host="0.0.0.0",
        port=8081,
        entrypoint="",
        name="",
        openai_base_url="http://x/v1",
        openai_api_key="dummy_key",
        openai_model="m",
    )
    server = TemperedOpenAIModel(config=config, server_client=MagicMock(spec=ServerClient))
    client = TestClient(server.setup_webserver())
    for temperature in (1.5, 0.1):
        reply = client.post("/v1/responses", json={"input": "hi", "temperature": temperature})
        assert reply.json()["something_new"] == 1
    assert [call["temperature"] for call in asked] == [0.5, 0.1]
    assert asked[0]["model"] == "m"
