from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from responses_api_models.memo_model.app import MemoModel, MemoModelConfig


class TestMemo:
    def setup_method(self) -> None:
        client = MagicMock(spec=ServerClient)
        client.global_config_dict = OmegaConf.create({})
        answer = NeMoGymResponse(
            id="r",
            created_at=0,
            model="m",
            object="response",
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            output=[
                {
                    "id": "i",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
                }
            ],
        )
        mock = MagicMock(ok=True, cookies={})
        mock.read = AsyncMock(return_value=answer.model_dump_json())
        client.post = AsyncMock(return_value=mock)
        self.server = MemoModel(
            config=MemoModelConfig(
                host="0.0.0.0",
                port=8080,
                entrypoint="",
                name="memo",
                model_server=ModelServerRef(type="responses_api_models", name="policy_model"),
            ),
            server_client=client,
        )
        self.client = TestClient(self.server.setup_webserver())

    def test_memo(self) -> None:
        ids = {self.client.post("/v1/responses", json={"input": "Hi?"}).json()["id"] for _ in range(3)}
        assert len(ids) == 3
        assert self.server.server_client.post.await_count == 1
        assert self.client.get("/memo_stats").json() == {"misses": 1, "hits": 2}

    def test_chat(self) -> None:
        body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hi?"}], "seed": 1}
        completion = self.client.post("/v1/chat/completions", json=body).json()
        assert completion["choices"][0]["message"]["content"] == "Yes."
        sent = self.server.server_client.post.await_args.kwargs["json"]
        assert [item.role for item in sent.input][-1] == "user"
