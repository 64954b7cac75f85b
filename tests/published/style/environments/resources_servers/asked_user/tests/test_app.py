from unittest.mock import AsyncMock, MagicMock

import pytest
from app import AskedUserConfig, AskedUserResourcesServer
from fastapi.testclient import TestClient
from pytest import approx

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient

RESPONSE = NeMoGymResponse(
    id="r",
    created_at=1.5,
    model="m",
    object="response",
    parallel_tool_calls=True,
    tool_choice="auto",
    tools=[],
    output=[
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Soup.", "annotations": []}],
        },
    ],
)


@pytest.fixture
def server():
    return AskedUserResourcesServer(
        config=AskedUserConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="asked",
            user_model_server=ModelServerRef(type="responses_api_models", name="user_model"),
            user_responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input=[], temperature=0.3),
        ),
        server_client=MagicMock(spec=ServerClient),
    )


def test_ask(server):
    mock = AsyncMock()
    mock.read = AsyncMock(return_value=RESPONSE.model_dump_json().encode())
    mock.cookies = {"user": "1"}
    server.server_client.post = AsyncMock(return_value=mock)
    client = TestClient(server.setup_webserver())
    client.post("/seed_session", json={"persona": "a cook", "responses_create_params": {"input": "a"}})
    for left in (0, 0):
        res = client.post("/ask", json={"question": "What do you cook?"})
    assert res.json() == {"answer": "I have to go.", "questions_left": left}
    server.server_client.post.assert_awaited_once()
    sent = server.server_client.post.await_args.kwargs
    assert (sent["server_name"], sent["url_path"], sent["cookies"]) == ("user_model", "/v1/responses", None)
    assert sent["json"].model_dump(exclude_unset=True) == {
        "input": [
            {"content": "a cook", "role": "system"},
            {"content": "What do you cook?", "role": "user"},
        ],
        "temperature": 0.3,
    }
    assert server.config.user_responses_create_params.input == []
    row = {"responses_create_params": {"input": "a"}, "response": RESPONSE.model_dump(), "persona": "a cook"}
    res = client.post("/verify", json=row).json()
    assert res["reward"] == approx(1.0)
    assert res["asked"] == ["What do you cook?"]
    assert client.post("/verify", json=row).json()["reward"] == approx(0.0)
