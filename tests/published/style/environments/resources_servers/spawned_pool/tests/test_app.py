from unittest.mock import MagicMock, patch

from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from resources_servers.spawned_pool.app import SpawnedPoolConfig, SpawnedPoolResourcesServer, work

ROW = {
    "responses_create_params": {"input": "a"},
    "expected_count": 0,
    "response": {
        "id": "r",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
}


def test_a_process_counts() -> None:
    config = SpawnedPoolConfig(host="0.0.0.0", port=8080, entrypoint="", name="", start_method="fork")
    server = SpawnedPoolResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        res = client.post("/verify", json=ROW).json()
    assert (res["reward"], res["is_other_process"]) == (1.0, True)


def test_work() -> None:
    assert work("abcabc")[1] == 6
    with patch("resources_servers.spawned_pool.app.count_letters", return_value=9):
        assert work("")[1] == 9
