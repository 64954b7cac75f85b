from unittest.mock import MagicMock

import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient

from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from resources_servers.running_sum.app import (
    AddRequest,
    RunningSumResourcesServer,
    RunningSumResourcesServerConfig,
    RunningSumSeedSessionRequest,
)

ROW = {"responses_create_params": {"input": "Add up."}, "first_total": 2, "expected_total": 5, "unused": None}
RESPONSE = {
    "id": "resp_1",
    "created_at": 0.0,
    "model": "dummy",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@pytest.fixture
def server() -> RunningSumResourcesServer:
    config = RunningSumResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="running_sum")
    return RunningSumResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def test_sessions_are_kept_apart_by_their_cookies(server: RunningSumResourcesServer) -> None:
    app = server.setup_webserver()
    first, second = TestClient(app), TestClient(app)
    assert first.post("/seed_session", json=ROW).json() == {"first_total": 2}
    assert second.post("/seed_session", json={**ROW, "first_total": 40}).status_code == 200
    assert first.post("/add", json={"number": 3}).json() == {"success": True, "total": 5}
    assert second.post("/add", json={"number": 3}).json()["total"] == 43

    graded = [client.post("/verify", json={**ROW, "response": RESPONSE}) for client in (first, second)]
    assert [each.json()["reward"] for each in graded] == [1.0, 0.0]
    # The request model ignores undeclared fields, so the response does not contain them.
    assert "unused" not in graded[0].json()
    assert server.session_id_to_total == {}
    assert len(set(server.finished_session_ids)) == 2


def test_every_response_carries_the_session_cookie(server: RunningSumResourcesServer) -> None:
    client = TestClient(server.setup_webserver())
    name = server.get_session_middleware_key()
    assert name == "RunningSumResourcesServer___running_sum"
    cookie = client.post("/get_total").cookies[name]
    # Like an agent, send only the cookies of the last response.
    for _ in range(2):
        answer = TestClient(client.app, cookies={name: cookie}).post("/get_total")
        cookie = answer.cookies[name]
        assert answer.json() == {"total": 0}


def test_errors_have_the_status_they_were_raised_with(server: RunningSumResourcesServer) -> None:
    client = TestClient(server.setup_webserver())
    answer = client.post("/add", json={"number": 1})
    assert answer.status_code == 400
    assert "seed_session" in answer.json()["detail"]
    client.post("/seed_session", json=ROW)
    assert client.post("/add", json={"number": 4000}).json() == {"detail": "4000 is too much to add at once"}
    assert client.post("/add", json={"number": "many"}).status_code == 422


async def test_methods_are_called_with_a_mocked_request(server: RunningSumResourcesServer) -> None:
    request = MagicMock()
    request.session = {SESSION_ID_KEY: "abc"}
    with pytest.raises(HTTPException) as raised:
        await server.add(request, AddRequest(number=1))
    assert raised.value.status_code == 400
    await server.seed_session(request, RunningSumSeedSessionRequest(first_total=1))
    assert (await server.add(request=request, body=AddRequest(number=1))).total == 2
    assert server.session_id_to_total == {"abc": 2}
