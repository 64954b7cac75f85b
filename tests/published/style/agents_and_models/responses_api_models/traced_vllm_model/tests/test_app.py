import json
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from pytest import MonkeyPatch

from nemo_gym.base_responses_api_model import start_model_execution
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import ServerClient
from responses_api_models.traced_vllm_model.app import TracedVLLMModel, TracedVLLMModelConfig

MESSAGE = {"role": "assistant", "content": "<think>Hm.</think>Hi."}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "length", "message": MESSAGE}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "cached_input_tokens": 2},
}


def make_server(**fields) -> TracedVLLMModel:
    config = TracedVLLMModelConfig(
        host="0.0.0.0",
        port=8081,
        entrypoint="",
        name="",
        base_url="http://localhost:5555/v1",
        api_key="dummy_key",
        model="m",
        **fields,
    )
    server_client = MagicMock(spec=ServerClient)
    server_client.global_config_dict = {}
    return TracedVLLMModel(config=config, server_client=server_client)


def test_a_new_execution() -> None:
    request = MagicMock()
    execution = start_model_execution(request, upstream_attempted=False)
    assert request.state.nemo_gym_model_execution is execution
    assert execution == {
        "upstream_attempted": False,
        "response_source": None,
        "upstream_status_code": None,
        "local_response_reason": None,
    }


def test_upstream_and_local_answers(monkeypatch: MonkeyPatch) -> None:
    asked = []

    async def create_chat_completion(self, **kwargs):
        asked.append(kwargs)
        return json.loads(json.dumps(COMPLETION))

    monkeypatch.setattr(NeMoGymAsyncOpenAI, "create_chat_completion", create_chat_completion)
    server = make_server(most_items=2)
    client = TestClient(server.setup_webserver())
    answer = client.post(server.captured_path("1-0"), json={"input": "hi"})
    assert json.loads(answer.headers["x-model-execution"])["response_source"] == "upstream"
    response = answer.json()
    # The reasoning stays in the text, and only the response is incomplete.
    assert response["output"][0]["content"][0]["text"] == "<think>Hm.</think>Hi."
    assert (response["status"], response["output"][0]["status"]) == ("incomplete", "completed")
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 2
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] is None

    answer = client.post("/v1/responses", json={"input": [{"role": "user", "content": "hi"}] * 3})
    assert json.loads(answer.headers["x-model-execution"]) == {
        "upstream_attempted": False,
        "response_source": "local",
        "upstream_status_code": None,
        "local_response_reason": "most_items",
    }
    assert len(asked) == 1
