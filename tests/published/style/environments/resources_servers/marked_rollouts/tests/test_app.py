from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi.testclient import TestClient

from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from resources_servers.marked_rollouts.app import (
    MarkedRolloutsResourcesServer,
    MarkedRolloutsResourcesServerConfig,
)

ROW = {
    "responses_create_params": {"input": "?"},
    "response": {
        "id": "resp",
        "created_at": 0.0,
        "model": "dummy",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
}


@pytest.fixture
def server() -> MarkedRolloutsResourcesServer:
    config = MarkedRolloutsResourcesServerConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        other_server=ResourcesServerRef(type="resources_servers", name="running_sum"),
    )
    answer = AsyncMock()
    answer.ok = True
    answer.cookies = {"a": "b"}
    answer.read = AsyncMock(return_value=orjson.dumps({"total": 7}))
    server = MarkedRolloutsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    server.server_client.post.return_value = answer
    return server


def test_a_prefix_names_the_rollout_of_any_route(server: MarkedRolloutsResourcesServer) -> None:
    client = TestClient(server.setup_webserver())
    answer = client.post("/ng-rollout/7-1/verify", json=ROW)
    assert answer.json()["rollout_id"] == "7-1"
    assert answer.headers["x-noted"] == "1"
    assert client.post("/verify", json=ROW).json()["rollout_id"] is None
    assert server.server_client.post.call_args.kwargs["cookies"] == {"a": "b"}


def test_an_exception_handler_answers(server: MarkedRolloutsResourcesServer) -> None:
    answer = TestClient(server.setup_webserver()).get("/paper")
    assert (answer.status_code, answer.json()) == (503, {"detail": "out of paper"})


async def test_an_inner_error_is_raised_with_its_body(server: MarkedRolloutsResourcesServer) -> None:
    failed = AsyncMock()
    failed.ok = False
    failed.content.read = AsyncMock(return_value=b"no such session")
    failed.raise_for_status = MagicMock(side_effect=RuntimeError("500"))
    server.server_client.post.return_value = failed
    with pytest.raises(RuntimeError) as raised:
        await server.verify(MagicMock())
    assert raised.value.response_content == b"no such session"
