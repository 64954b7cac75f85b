from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient
from pytest import MonkeyPatch

from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import ServerClient
from responses_api_models.pinned_model.app import PinnedModel, PinnedModelConfig

ANSWER = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class TestApp:
    def _server(self, base_url) -> PinnedModel:
        config = PinnedModelConfig(
            host="0.0.0.0", port=8081, entrypoint="", name="", base_url=base_url, api_key="dummy_key", model="m"
        )
        server_client = MagicMock(spec=ServerClient)
        server_client.global_config_dict = {}
        return PinnedModel(config=config, server_client=server_client)

    def test_one_base_url(self) -> None:
        server = self._server("http://localhost:5555/v1")
        assert [client.base_url for client in server._clients] == ["http://localhost:5555/v1"]
        assert server._clients[0].api_key == "dummy_key"

    def test_a_session_keeps_its_endpoint(self, monkeypatch: MonkeyPatch) -> None:
        asked = []

        async def create_response(self, **kwargs):
            asked.append(self.base_url)
            return ANSWER

        monkeypatch.setattr(NeMoGymAsyncOpenAI, "create_response", create_response)
        app = self._server(["http://one/v1", "http://two/v1"]).setup_webserver()
        one, two = TestClient(app), TestClient(app)
        for client in (one, two, one, two, two):
            assert client.post("/v1/responses", json={"input": "hi"}).status_code == 200
        assert asked == [f"http://{name}/v1" for name in ("one", "two", "one", "two", "two")]

    def test_the_client_may_be_replaced(self) -> None:
        server = self._server("http://one/v1")
        server._clients[0] = MagicMock(spec=NeMoGymAsyncOpenAI)
        server._clients[0].create_response = AsyncMock(return_value=ANSWER)
        body = {"input": "hi", "temperature": 0.5}
        TestClient(server.setup_webserver()).post("/v1/responses", json=body).raise_for_status()
        server._clients[0].create_response.assert_awaited_once_with(input="hi", temperature=0.5, model="m")
