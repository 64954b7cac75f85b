from unittest.mock import MagicMock

from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import NeMoGymResponse
from nemo_gym.openai_utils import NeMoGymResponseOutputMessage, NeMoGymResponseOutputText
from nemo_gym.server_utils import ServerClient
from resources_servers.route_swap.app import RouteSwapResourcesServer, RouteSwapResourcesServerConfig


class TestApp:
    def _client(self) -> TestClient:
        config = RouteSwapResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
        server = RouteSwapResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
        return TestClient(server.setup_webserver())

    def _row(self, colour: str, text: str) -> dict:
        response = NeMoGymResponse(
            id="resp",
            created_at=0.0,
            model="dummy",
            object="response",
            output=[
                NeMoGymResponseOutputMessage(id="msg", content=[NeMoGymResponseOutputText(annotations=[], text=text)])
            ],
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        )
        return {"responses_create_params": {"input": "?"}, "colour": colour, "response": response.model_dump()}

    def test_replaced_routes_are_the_only_ones(self) -> None:
        client = self._client()
        answer = client.post("/seed_session", json={"colour": "green", "odd": 1})
        assert answer.json()["fields"] == ["colour", "odd"]
        assert client.post("/verify", json=self._row("green", "green")).json()["reward"] == 1.0
        assert client.post("/verify", json=self._row("green", "red")).json()["reward"] == 0.0
        paths = [route.path for route in client.app.routes]
        assert paths.count("/verify") == paths.count("/seed_session") == 1

    def test_a_judges_error_is_an_answer(self) -> None:
        answer = self._client().post("/verify", json=self._row("invisible", "red"))
        assert answer.status_code == 200
        row = answer.json()
        assert (row["reward"], row["_ng_failure_class"], row["colour"]) == (0.0, "judge_failed", "invisible")
        assert "this cannot be judged" in row["_ng_failure_judge_error"]
