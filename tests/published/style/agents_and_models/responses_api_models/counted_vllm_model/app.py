from typing import Any, Dict

from fastapi import Request
from pydantic import Field

from nemo_gym.base_responses_api_model import Body
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig


class CountedVLLMModelConfig(VLLMModelConfig):
    most_calls: int = 100


class CountedVLLMModel(VLLMModel):
    config: CountedVLLMModelConfig
    calls: Dict[str, int] = Field(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await super().responses(request, body)
        return response.model_copy(update={"metadata": {"calls": str(self._count(request))}})

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        self._count(request)
        return await super().chat_completions(request, body)

    def _count(self, request: Request) -> int:
        session_id = request.session[SESSION_ID_KEY]
        self.calls[session_id] = self.calls.get(session_id, 0) + 1
        return self.calls[session_id]


if __name__ == "__main__":
    CountedVLLMModel.run_webserver()
