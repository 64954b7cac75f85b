from unittest.mock import MagicMock

from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymChatCompletionCreateParamsNonStreaming, NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelConfig

TOOL = {
    "type": "function",
    "name": "increment_counter",
    "description": "Count.",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
    "strict": True,
}


class TestApp:
    def _server(self) -> ScriptedModel:
        config = ScriptedModelConfig(host="0.0.0.0", port=8081, entrypoint="", name="", model="m", tool_calls=1)
        return ScriptedModel(config=config, server_client=MagicMock(spec=ServerClient), asked={})

    def test_a_session_of_its_own(self) -> None:
        app = self._server().setup_webserver()
        client, other = TestClient(app), TestClient(app)
        body = {"input": "Go.", "tools": [TOOL]}
        first = client.post("/v1/responses", json=body)
        assert first.json()["output"][0]["arguments"] == '{"count": 1}'
        assert any(name.startswith("ScriptedModel___") for name in first.cookies)
        second = NeMoGymResponse.model_validate(client.post("/v1/responses", json=body).json())
        assert second.output_text == "I was asked 2 times."
        assert other.post("/v1/responses", json=body).json()["output"][0]["type"] == "function_call"

    def test_chat_completions_without_a_request(self) -> None:
        client = TestClient(self._server().setup_webserver())
        body = {"messages": [{"role": "user", "content": "hi"}], "something_new": 1}
        answered = client.post("/v1/chat/completions", json=body).json()
        assert answered["choices"][0]["message"]["content"] == "You said: hi"

    async def test_called_as_a_method(self) -> None:
        body = NeMoGymChatCompletionCreateParamsNonStreaming(messages=[{"role": "user", "content": "x"}])
        assert (await self._server().chat_completions(body)).choices[0].message.content == "You said: x"

    def test_strict_params_and_streams(self) -> None:
        client = TestClient(self._server().setup_webserver())
        assert client.post("/v1/responses", json={"input": "x", "spam": 1}).status_code == 422
        with client.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as streamed:
            events = [line for line in streamed.iter_lines() if line.startswith("event:")]
        assert [events[0], events[-1]] == ["event: response.created", "event: response.completed"]
        chat = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        assert client.post("/v1/chat/completions", json=chat).text.rstrip().endswith("data: [DONE]")
