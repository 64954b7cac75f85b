from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY
from nemo_gym.server_utils import ServerClient
from resources_servers.failed_rows.app import FailedRowsResourcesServer, FailedRowsResourcesServerConfig

RESPONSE = {
    "id": "resp",
    "created_at": 0.0,
    "model": "dummy",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@pytest.fixture
def client() -> TestClient:
    config = FailedRowsResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    server = FailedRowsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver())


def _row(ending: str) -> dict:
    return {"responses_create_params": {"input": "?"}, "ending": ending, "_ng_task_index": 4, "response": RESPONSE}


def test_failure_fields_are_answered(client: TestClient) -> None:
    answer = client.post("/verify", json=_row("failed")).json()
    assert answer[NG_FAILURE_CLASS_KEY] == "sandbox_lost"
    assert answer["seen_index"] == 4
    assert client.post("/verify", json=_row("masked")).json()["mask_sample"] is True


def test_handler_exceptions_reach_the_test(client: TestClient) -> None:
    with pytest.raises(ValueError, match="the verifier is broken"):
        client.post("/verify", json=_row("raised"))
    with pytest.raises(RuntimeError):
        client.post("/break_it", json={"how": "brutally"})
    assert client.post("/break_it", json={"how": "politely"}).status_code == 418
    assert client.post("/break_it", json={"who": "me"}).status_code == 422


def test_or_answered_where_the_test_wants_that() -> None:
    config = FailedRowsResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    server = FailedRowsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    answer = TestClient(app, raise_server_exceptions=False).post("/break_it", json={"how": "brutally"})
    assert answer.status_code == 500
    assert "broken brutally" in answer.text
