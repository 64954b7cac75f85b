import hashlib
import json
from collections import Counter
from time import time
from typing import Any, Dict
from uuid import uuid4

from fastapi import FastAPI, Request

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import get_response_json, raise_for_status


class MemoModelConfig(BaseResponsesAPIModelConfig):
    model_server: ModelServerRef
    keyed_by: str = "input"


class MemoModel(SimpleResponsesAPIModel):
    config: MemoModelConfig

    def model_post_init(self, context: Any) -> None:
        self._memo: Dict[str, NeMoGymResponse] = {}
        self._hits = Counter()
        self._converter = ResponsesConverter(return_token_id_information=False)
        return super().model_post_init(context)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/memo_stats")(self.memo_stats)
        return app

    async def memo_stats(self) -> Dict[str, int]:
        return dict(self._hits)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        dumped = body.model_dump(exclude_unset=True)
        key = hashlib.sha256(json.dumps(dumped[self.config.keyed_by], sort_keys=True).encode()).hexdigest()
        self._hits["hits" if key in self._memo else "misses"] += 1
        if key not in self._memo:
            response = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path="/v1/responses",
                json=body,
                cookies=request.cookies,
            )
            await raise_for_status(response)
            self._memo[key] = NeMoGymResponse.model_validate(await get_response_json(response))
        return self._memo[key].model_copy(update={"id": f"resp_{uuid4().hex}"})

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        params = self._converter.chat_completion_to_responses_create_params(body)
        response = await self.responses(request, NeMoGymResponseCreateParamsNonStreaming.model_validate(params))
        return NeMoGymChatCompletion(
            id=f"chat_{response.id}",
            choices=[
                NeMoGymChoice(
                    finish_reason="stop",
                    index=0,
                    message=NeMoGymChatCompletionMessage(role="assistant", content=response.output_text),
                )
            ],
            created=int(time()),
            model=response.model,
            object="chat.completion",
        )


if __name__ == "__main__":
    MemoModel.run_webserver()
