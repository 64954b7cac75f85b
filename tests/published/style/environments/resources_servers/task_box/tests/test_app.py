from unittest.mock import MagicMock

from app import TaskBoxResourcesServer, TaskBoxResourcesServerConfig
from fastapi.testclient import TestClient
from task_data import TaskData

from nemo_gym.server_utils import ServerClient

ROW = {"responses_create_params": {"input": "Put it in."}, "box": "red", "expected_content": "hat"}


def _server() -> TaskBoxResourcesServer:
    config = TaskBoxResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    return TaskBoxResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def test_task_data_is_the_rows_own_fields() -> None:
    assert TaskData.model_validate(ROW).model_dump() == {"box": "red", "expected_content": "hat"}
    assert TaskBoxResourcesServer.ray_enabled is True


def test_session_is_seeded_by_row_or_task_data() -> None:
    server = _server()
    for seed in (ROW, {"task_id": "t", "episode_id": "e", "resources_session_id": "r", "task_data": {"box": "red"}}):
        client = TestClient(server.setup_webserver())
        assert client.post("/seed_session", json=seed).status_code == 200
        assert client.post("/put", json={"content": "hat"}).json() == {"message": "The red box holds hat."}
        assert len(server.boxes) == 1
        assert client.post("/close_session", json={}).status_code == 200
        assert server.boxes == {}


def test_a_session_is_closed_without_a_body() -> None:
    server = _server()
    client = TestClient(server.setup_webserver())
    client.post("/seed_session", json=ROW)
    assert client.post("/close_session").json() == {"closed": True}
    assert server.boxes == {}
