from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from pytest import MonkeyPatch

import nemo_gym.responses_converter
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import ServerClient
from responses_api_models.counted_vllm_model.app import CountedVLLMModel, CountedVLLMModelConfig


class FakeUUID:
    """A constant uuid."""

    hex = "123"


COMPLETION = {
    "id": "chtcmpl-123",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "<think>A tool is needed.</think>I look.",
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
        }
    ],
}


class TestApp:
    def _server(self, monkeypatch: MonkeyPatch) -> CountedVLLMModel:
        config = CountedVLLMModelConfig(
            host="0.0.0.0",
            port=8081,
            entrypoint="",
            name="",
            base_url="http://localhost:5555/v1",
            api_key="dummy_key",
            model="m",
            return_token_id_information=False,
            uses_reasoning_parser=True,
        )
        server_client = MagicMock(spec=ServerClient)
        server_client.global_config_dict = {}
        self.asked = []

        async def create_chat_completion(client: NeMoGymAsyncOpenAI, **kwargs):
            self.asked.append(kwargs)
            return COMPLETION

        monkeypatch.setattr(NeMoGymAsyncOpenAI, "create_chat_completion", create_chat_completion)
        monkeypatch.setattr(nemo_gym.responses_converter, "uuid4", FakeUUID)
        return CountedVLLMModel(config=config, server_client=server_client)

    def test_sanity(self, monkeypatch: MonkeyPatch) -> None:
        self._server(monkeypatch)

    def test_reasoning_text_and_call(self, monkeypatch: MonkeyPatch) -> None:
        client = TestClient(self._server(monkeypatch).setup_webserver())
        reply = client.post("/v1/responses", json={"input": "Look."}).json()
        assert [item["type"] for item in reply["output"]] == ["reasoning", "message", "function_call"]
        assert [reply["id"], reply["output"][0]["id"], reply["output"][1]["id"]] == ["resp_123", "rs_123", "msg_123"]
        assert reply["output"][2]["call_id"] == "call_1"
        assert reply["metadata"] == {"calls": "1"}
        assert self.asked[0]["model"] == "m"

        again = client.post("/v1/responses", json={"input": [{"role": "user", "content": "Look."}, *reply["output"]]})
        assert again.json()["metadata"] == {"calls": "2"}
        assistant = self.asked[1]["messages"][1]
        assert assistant["content"] == "<think>A tool is needed.</think>I look."
        assert assistant["tool_calls"][0]["function"]["name"] == "look"

    def test_chat_completions(self, monkeypatch: MonkeyPatch) -> None:
        client = TestClient(self._server(monkeypatch).setup_webserver())
        body = {"messages": [{"role": "user", "content": "Look."}]}
        reply = client.post("/v1/chat/completions", json=body).json()
        assert reply["choices"][0]["message"]["content"] == "<think>A tool is needed.</think>I look."
