from typing import Any, Dict, List, Union

from fastapi import Request

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class PinnedModelConfig(BaseResponsesAPIModelConfig):
    base_url: Union[str, List[str]]
    api_key: str
    model: str

    def model_post_init(self, context: Any) -> None:
        if isinstance(self.base_url, str):
            self.base_url = [self.base_url]
        return super().model_post_init(context)


class PinnedModel(SimpleResponsesAPIModel):
    """A model server with several endpoints, one per session."""

    config: PinnedModelConfig

    def model_post_init(self, context: Any) -> None:
        self._clients: List[NeMoGymAsyncOpenAI] = [
            NeMoGymAsyncOpenAI(base_url=base_url, api_key=self.config.api_key) for base_url in self.config.base_url
        ]
        self._session_id_to_client: Dict[str, NeMoGymAsyncOpenAI] = {}
        return super().model_post_init(context)

    def _resolve_client(self, request: Request) -> NeMoGymAsyncOpenAI:
        session_id = request.session[SESSION_ID_KEY]
        if session_id not in self._session_id_to_client:
            index = len(self._session_id_to_client) % len(self._clients)
            self._session_id_to_client[session_id] = self._clients[index]
        return self._session_id_to_client[session_id]

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        body_dict = body.model_dump(exclude_unset=True)
        body_dict["model"] = self.config.model
        return NeMoGymResponse.model_validate(await self._resolve_client(request).create_response(**body_dict))

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        body_dict = body.model_dump(exclude_unset=True)
        body_dict["model"] = self.config.model
        client = self._resolve_client(request)
        completion = await client.create_chat_completion(**body_dict)
        tokens = await client.create_tokenize(model=self.config.model, messages=body_dict["messages"])
        completion["prompt_token_count"] = len(tokens["tokens"])
        completion["served"] = [model["id"] for model in (await client.create_models())["data"]]
        return NeMoGymChatCompletion.model_validate(completion)


if __name__ == "__main__":
    PinnedModel.run_webserver()
