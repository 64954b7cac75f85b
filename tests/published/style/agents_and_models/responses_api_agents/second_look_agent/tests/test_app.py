from unittest.mock import AsyncMock, MagicMock

import orjson
from app import SecondLookAgent, SecondLookAgentConfig
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient


def said(text: str) -> dict:
    return {
        "id": "resp",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [
            {
                "id": "msg",
                "content": [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def answer_of(value: object) -> AsyncMock:
    mock = AsyncMock()
    mock.ok = True
    mock.cookies = {"session": "s"}
    mock.read = AsyncMock(return_value=orjson.dumps(value))
    return mock


def make_server() -> SecondLookAgent:
    config = SecondLookAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        resources_server=ResourcesServerRef(type="resources_servers", name="env"),
        model_server=ModelServerRef(type="responses_api_models", name="model"),
    )
    return SecondLookAgent(config=config, server_client=MagicMock(spec=ServerClient))


def test_two_answers_of_the_simple_agent() -> None:
    server = make_server()
    server.server_client.post = AsyncMock(side_effect=[answer_of(said("One.")), answer_of(said("Two."))])
    res = TestClient(server.setup_webserver()).post("/v1/responses", json={"input": "Count."})
    assert res.status_code == 200
    texts = [item["content"] for item in res.json()["output"]]
    assert texts[0][0]["text"] == "One."
    assert texts[1] == "Please check your answer."
    assert texts[2][0]["text"] == "Two."


def test_tool_call_works_with_minimal_mocks() -> None:
    call = {"arguments": '{"city": "Oslo"}', "call_id": "c1", "name": "look", "type": "function_call", "id": "fc"}
    server = make_server()
    server.server_client.post = AsyncMock(
        side_effect=[
            answer_of({**said(""), "output": [call]}),
            answer_of({"seen": 1}),
            answer_of(said("One.")),
            answer_of(said("Two.")),
        ]
    )
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    res = TestClient(server.setup_webserver()).post("/v1/responses", json={"input": "Look.", "tools": [tool]})
    assert res.status_code == 200
    assert res.json()["output"][1]["output"] == '{"seen":1}'
