from unittest.mock import MagicMock

from pytest import fixture, mark

from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymResponseReasoningItem,
    NeMoGymSummary,
)
from nemo_gym.server_utils import ServerClient
from resources_servers.exact_word.app import (
    ExactWordResourcesServer,
    ExactWordResourcesServerConfig,
    ExactWordVerifyRequest,
)


class TestApp:
    @fixture
    def config(self) -> ExactWordResourcesServerConfig:
        return ExactWordResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")

    def _create_response(self, *output) -> NeMoGymResponse:
        return NeMoGymResponse(
            id="resp_test",
            created_at=0.0,
            model="dummy",
            object="response",
            output=list(output),
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        )

    def _message(self, *parts) -> NeMoGymResponseOutputMessage:
        return NeMoGymResponseOutputMessage(
            id="msg_test", content=list(parts), role="assistant", status="completed", type="message"
        )

    def _text(self, text: str) -> NeMoGymResponseOutputText:
        return NeMoGymResponseOutputText(annotations=[], text=text, type="output_text", logprobs=None)

    def test_sanity(self, config: ExactWordResourcesServerConfig) -> None:
        ExactWordResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))

    @mark.parametrize(
        "text,expected_reward",
        [("It is Paris.", 1.0), ("paris", 1.0), ("Lutetia", 1.0), ("Rome", 0.0), ("", 0.0)],
    )
    async def test_verify(self, config: ExactWordResourcesServerConfig, text: str, expected_reward: float) -> None:
        server = ExactWordResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
        thinking = NeMoGymResponseReasoningItem(
            id="rs_test", summary=[NeMoGymSummary(text="London London", type="summary_text")], type="reasoning"
        )
        request = ExactWordVerifyRequest(
            responses_create_params=NeMoGymResponseCreateParamsNonStreaming(
                input=[{"role": "user", "content": "Capital of France?"}]
            ),
            response=self._create_response(thinking, self._message(self._text(text))),
            expected_word="Paris",
            also_right=["Lutetia"],
            uuid="row-7",
        )
        result = await server.verify(request)
        assert result.reward == expected_reward
        assert result.model_dump()["uuid"] == "row-7"
        assert result.response.output_text == text

    async def test_refusal_is_no_answer(self, config: ExactWordResourcesServerConfig) -> None:
        server = ExactWordResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
        refusal = NeMoGymResponseOutputRefusal(refusal="No.", type="refusal")
        result = await server.verify(
            ExactWordVerifyRequest(
                responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input="Capital of France?"),
                response=self._create_response(self._message(refusal)),
                expected_word="No",
            )
        )
        assert result.reward == 0.0
        assert result.extracted_word is None

    async def test_case_sensitive_comparison(self, config: ExactWordResourcesServerConfig) -> None:
        config = config.model_copy(update={"ignore_case": False})
        server = ExactWordResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
        body = ExactWordVerifyRequest.model_validate(
            {
                "responses_create_params": {"input": []},
                "response": self._create_response(self._message(self._text("paris"))).model_dump(),
                "expected_word": "Paris",
            }
        )
        assert (await server.verify(body)).reward == 0.0
