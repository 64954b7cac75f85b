from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from resources_servers.guess_number.app import GuessNumberResourcesServerConfig, GuessNumberServer


def _response(text: str) -> NeMoGymResponse:
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return NeMoGymResponse(
        id="resp",
        created_at=0.0,
        model="dummy",
        object="response",
        output=[message],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )


@pytest.fixture
def server() -> GuessNumberServer:
    config = GuessNumberResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="", max_guesses=3)
    return GuessNumberServer(config=config, server_client=MagicMock(spec=ServerClient))


async def test_a_game_in_tuples(server: GuessNumberServer) -> None:
    observation, _ = await server.reset({"secret": 12}, "s1")
    assert observation == "Guess a number from 1 to 20."
    assert (await server.step(_response("10"), {}, "s1"))[0] == "Higher."
    assert (await server.step(_response("No idea"), {}, "s1"))[0] == "Say a number."
    assert await server.step(_response("It is 12"), {}, "s1") == (None, 1.0, True, False, {"guesses": 3})
    await server.reset({"seed": 3}, session_id="s2")
    assert set(server._secrets) == {"s1", "s2"}


def test_a_game_over_http(server: GuessNumberServer) -> None:
    client = TestClient(server.setup_webserver())
    row = {"responses_create_params": {"input": []}, "secret": 4}
    reset = client.post("/reset", json=row).json()
    assert reset["observation"] == "Guess a number from 1 to 20."
    step = client.post("/step", json={**row, "response": _response("7").model_dump()}).json()
    assert (step["observation"], step["reward"], step["terminated"], step["truncated"]) == (
        "Lower.",
        0.0,
        False,
        False,
    )
    step = client.post("/step", json={**row, "response": _response("4").model_dump()}).json()
    assert (step["reward"], step["terminated"], step["info"]["guesses"]) == (1.0, True, 2)
