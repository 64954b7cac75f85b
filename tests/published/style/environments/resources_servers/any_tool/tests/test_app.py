from unittest.mock import MagicMock

from app import AnyToolResourcesServer, AnyToolResourcesServerConfig
from fastapi.testclient import TestClient
from pytest import fixture

from nemo_gym.server_utils import ServerClient

RESPONSE = {
    "id": "resp_1",
    "created_at": 0.0,
    "model": "dummy",
    "object": "response",
    "output": [{"type": "function_call", "call_id": "c", "name": "greet", "arguments": '{"whom": "Ada"}'}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@fixture
def client() -> TestClient:
    config = AnyToolResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    server = AnyToolResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver())


def test_any_name_reaches_the_catch_all(client: TestClient) -> None:
    assert client.post("/greet", json={"whom": "Ada"}).json() == "Good morning, Ada."
    assert client.post("/count", json={"letters": "abc"}).json() == {"count": 3}
    assert client.post("/no_such_tool", json={}).json() == {"error": "Tool no_such_tool not found"}
    assert client.post("/greet", json={"who": "Ada"}).status_code == 400


def test_the_servers_own_routes_come_first(client: TestClient) -> None:
    assert client.post("/greet", json={"whom": "Ada"}).status_code == 200
    row = {
        "responses_create_params": {"input": "Greet."},
        "ground_truth": [{"name": "greet", "arguments": {"whom": "Ada"}}],
    }
    graded = client.post("/verify", json={**row, "response": RESPONSE}).json()
    assert (graded["reward"], graded["seen"], graded["num_calls"]) == (1.0, ["greet"], 1)
    metrics = client.post("/aggregate_metrics", json={"verify_responses": [{"reward": 1.0, "_ng_task_index": 0}]})
    assert metrics.json()["key_metrics"]["mean/reward"] == 1.0
    assert client.post("/seed_session", json=row).json() == {}
