from unittest.mock import MagicMock, patch

from app import ThinModel, ThinModelConfig
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient


class FakeUUID:
    hex = "123"


def make_client(**fields) -> TestClient:
    config = ThinModelConfig(host="0.0.0.0", port=8081, entrypoint="", name="thin", **fields)
    server_client = MagicMock(spec=ServerClient)
    server_client.global_config_dict = {}
    return TestClient(ThinModel(config=config, server_client=server_client).setup_webserver())


@patch("nemo_gym.responses_converter.uuid4", FakeUUID)
def test_the_ids_of_items_are_known() -> None:
    answer = make_client().post("/v1/responses", json={"input": "hi", "instructions": "Be brief."}).json()
    assert answer["id"] == "resp_123"
    assert [item["id"] for item in answer["output"]] == ["rs_123", "msg_123"]
    assert answer["output"][0]["summary"] == [{"text": "Hm.", "type": "summary_text"}]
    assert answer["output"][1]["content"][0]["text"] == "2 messages"
    assert answer["usage"]["total_tokens"] == 7


def test_reasoning_may_stay_in_the_text() -> None:
    client = make_client(shows_reasoning=False)
    for body in ({"input": "hi"}, {"input": "hi", "instructions": "Be brief."}):
        (message,) = client.post("/v1/responses", json=body).json()["output"]
        assert message["content"][0]["text"].startswith("<think>Hm.</think>")


def test_a_leading_request() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    answer = make_client().post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "1 messages"
