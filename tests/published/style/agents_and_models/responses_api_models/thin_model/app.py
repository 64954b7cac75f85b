from uuid import uuid4

from fastapi import Request

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import SESSION_ID_KEY


class ThinModelConfig(BaseResponsesAPIModelConfig):
    model: str = "thin-1"
    shows_reasoning: bool = True


class ThinModel(SimpleResponsesAPIModel):
    """A Chat Completions model with a leading request parameter; a converter adds the Responses API."""

    config: ThinModelConfig

    def model_post_init(self, context):
        self._converter = ResponsesConverter(return_token_id_information=False)
        self._converter.uses_reasoning_parser = self.config.shows_reasoning
        return super().model_post_init(context)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        chat_body = self._converter.responses_to_chat_completion_create_params(body)
        completion = self._completion(f"<think>Hm.</think>{len(chat_body.messages)} messages")
        if body.instructions is None:
            return self._converter.chat_completion_to_response(body, completion)
        return self._converter.chat_completion_to_response(
            responses_create_params=body, chat_completion=completion.model_dump()
        )

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        assert request.session[SESSION_ID_KEY]
        return self._completion(f"{len(body.messages)} messages")

    def _completion(self, content: str) -> NeMoGymChatCompletion:
        return NeMoGymChatCompletion.model_validate(
            {
                "id": f"chatcmpl-{uuid4().hex}",
                "object": "chat.completion",
                "created": 0,
                "model": self.config.model,
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": content},
                    }
                ],
                "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
            }
        )


if __name__ == "__main__":
    ThinModel.run_webserver()
