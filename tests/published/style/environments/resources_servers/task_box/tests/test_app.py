from unittest.mock import MagicMock

import pytest
from app import TaskBoxResourcesServer, TaskBoxResourcesServerConfig
from fastapi.testclient import TestClient
from pydantic import ValidationError
from task_data import TaskData

from nemo_gym.base_resources_server import ResourcesSeedSessionRequest
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.server_utils import ServerClient

SEED = {
    "resources_session_id": "r",
    "episode_id": {"rollout_id": "3-0"},
    "task_id": {"taskset": "boxes", "task_id": "t"},
    "task_data": {"box": "red"},
}
ROW = {"responses_create_params": {"input": "Put it in."}, "box": "red", "expected_content": "hat"}


def _server() -> TaskBoxResourcesServer:
    config = TaskBoxResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    return TaskBoxResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def test_task_data_is_the_rows_own_fields() -> None:
    assert TaskData.model_validate(ROW).model_dump() == {"box": "red", "expected_content": "hat"}
    assert TaskBoxResourcesServer.ray_enabled is True


def test_session_is_seeded_by_row_or_task_data() -> None:
    server = _server()
    for seed in (ROW, SEED):
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


def test_seed_request_has_ids_as_objects() -> None:
    request = ResourcesSeedSessionRequest.model_validate(SEED)
    assert request.episode_id == EpisodeId(rollout_id="3-0", attempt=0)
    assert request.task_id == TaskId(taskset="boxes", task_id="t")
    for wrong in ({**SEED, "more": 1}, {"task_data": {}}, {**SEED, "episode_id": "3-0"}):
        with pytest.raises(ValidationError):
            ResourcesSeedSessionRequest.model_validate(wrong)
