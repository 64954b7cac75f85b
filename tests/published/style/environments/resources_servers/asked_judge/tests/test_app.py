import json
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from pytest import approx, fixture, mark

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient
from resources_servers.asked_judge.app import (
    AskedJudgeResourcesServer,
    AskedJudgeResourcesServerConfig,
    AskedJudgeVerifyRequest,
)


class TestApp:
    @fixture
    def config(self) -> AskedJudgeResourcesServerConfig:
        return AskedJudgeResourcesServerConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            judge_model_server=ModelServerRef(type="responses_api_models", name="judge"),
            judge_responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input=[], temperature=0.5),
        )

    def _create_response(self, id: str, text: str) -> dict[str, Any]:
        return NeMoGymResponse(
            id=id,
            created_at=123.0,
            model="judge_model",
            object="response",
            output=[
                NeMoGymResponseOutputMessage(
                    id="msg_id",
                    content=[NeMoGymResponseOutputText(annotations=[], text=text, type="output_text")],
                    role="assistant",
                    status="in_progress",
                    type="message",
                )
            ],
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        ).model_dump()

    @mark.parametrize("label, reward", [("[[YES]] Indeed.", 1.0), ("[[NO]]", 0.0)])
    @mark.parametrize("max_concurrency", [None, 1])
    async def test_verify(
        self, config: AskedJudgeResourcesServerConfig, label: str, reward: float, max_concurrency
    ) -> None:
        config.judge_endpoint_max_concurrency = max_concurrency
        server_mock = MagicMock(spec=ServerClient)
        server = AskedJudgeResourcesServer(config=config, server_client=server_mock)

        response_mock = AsyncMock()
        response_mock.read = AsyncMock(return_value=json.dumps(self._create_response("judge_id", label)).encode())
        server_mock.post = AsyncMock(return_value=response_mock)

        model_create_params = NeMoGymResponseCreateParamsNonStreaming(
            input=[NeMoGymEasyInputMessage(role="user", content="Who wrote Emma?")]
        )
        result = await server.verify(
            AskedJudgeVerifyRequest(
                responses_create_params=model_create_params,
                response=NeMoGymResponse.model_validate(self._create_response("model_id", "Austen")),
                question="Who wrote Emma?",
                expected_answer="Jane Austen",
            )
        )
        assert result.reward == approx(reward)
        assert result.responses_create_params == model_create_params
        assert sorted(list(result.model_dump())) == [
            "expected_answer",
            "judge_evaluation",
            "question",
            "response",
            "responses_create_params",
            "reward",
        ]
        server_mock.post.assert_awaited_once()
        sent = server_mock.post.call_args.kwargs
        assert sent["server_name"] == "judge"
        assert sent["json"].temperature == 0.5
        assert "Expected: Jane Austen" in sent["json"].input[-1].content
        # The settings themselves are not modified.
        assert config.judge_responses_create_params.input == []
