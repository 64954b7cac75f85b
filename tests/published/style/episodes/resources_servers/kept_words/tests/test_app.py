from unittest.mock import MagicMock

from app import KeptWordsConfig, KeptWordsResourcesServer, KeptWordsVerifyResponse
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.server_utils import ServerClient

SEED = {
    "resources_session_id": "r-1",
    "episode_id": {"rollout_id": "0-0", "attempt": 1},
    "task_id": {"taskset": "words", "task_id": "7"},
    "task_data": {"word": "fig", "plan": "masked"},
}
PARAMS = {"responses_create_params": {"input": "Say fig."}}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "fig", "annotations": []}],
}
RESPONSE = {
    "id": "r",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [MESSAGE],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def _client() -> TestClient:
    config = KeptWordsConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    return TestClient(
        KeptWordsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver()
    )


def test_masked_response_has_its_failure() -> None:
    client = _client()
    assert client.post("/seed_session", json=SEED).status_code == 200
    graded = client.post("/verify", json={**PARAMS, "response": RESPONSE}).json()
    assert (graded["reward"], graded["capture_key"], graded["taskset"]) == (1.0, "0-0-a1", "words")
    assert (graded["mask_sample"], graded["failure_kind"], graded["failure_reason"]) == (True, "sandbox", "disk full")
    assert client.post("/close_session", json={"resources_session_id": "r-1"}).json() == {"closed": True}
    assert client.post("/close_session", json={"resources_session_id": "r-1"}).json() == {"closed": False}


def test_unmasked_response_has_none_of_them() -> None:
    client = _client()
    client.post("/seed_session", json={**SEED, "task_data": {"word": "fig"}})
    graded = client.post("/verify", json={**PARAMS, "response": RESPONSE}).json()
    assert not {"mask_sample", "failure_kind", "failure_reason"} & graded.keys()
    assert {"mask_sample", "failure_kind", "failure_reason"} <= KeptWordsVerifyResponse.model_fields.keys()
    assert BaseVerifyResponse.model_fields["mask_sample"].default is False
