from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from resources_servers.exact_word.app import ExactWordResourcesServer
from resources_servers.strict_word.app import StrictWordResourcesServer, StrictWordResourcesServerConfig


@pytest.mark.parametrize("text, reward", [("It is Paris.", 1.0), ("It is paris.", 0.0), ("I know it: Paris", 0.0)])
def test_verify(text: str, reward: float) -> None:
    config = StrictWordResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="strict")
    server = StrictWordResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    assert isinstance(server, ExactWordResourcesServer)
    assert server.get_session_middleware_key() == "StrictWordResourcesServer___strict"
    client = TestClient(server.setup_webserver())
    assert client.get("/reverify_mode").json() == "stateless"
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    response = {
        "id": "resp",
        "created_at": 0.0,
        "model": "dummy",
        "object": "response",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    row = {"responses_create_params": {"input": "Capital?"}, "expected_word": "Paris", "response": response}
    answer = client.post("/verify", json=row).json()
    assert answer["reward"] == reward
    assert answer["num_words"] == len(text.split())
