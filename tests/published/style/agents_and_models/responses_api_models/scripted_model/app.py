import asyncio
import json
from time import time
from typing import Any, Dict
from uuid import uuid4

from fastapi import Request
from pydantic import PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)
from nemo_gym.server_utils import SESSION_ID_KEY, is_nemo_gym_fastapi_entrypoint


class ScriptedModelConfig(BaseResponsesAPIModelConfig):
    model: str
    tool: str = "increment_counter"
    tool_calls: int = 2
    concurrency: int = 8


class ScriptedModel(SimpleResponsesAPIModel):
    """A model that calls its tool a number of times per session, then answers with its number of requests."""

    config: ScriptedModelConfig
    asked: Dict[str, int] = {}
    _gate: asyncio.Semaphore = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._gate = asyncio.Semaphore(self.config.concurrency)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        session_id = request.session[SESSION_ID_KEY]
        async with self._gate:
            asked = self.asked[session_id] = self.asked.get(session_id, 0) + 1
        names = [tool["name"] for tool in body.tools]
        if asked <= self.config.tool_calls and (not names or self.config.tool in names) and names:
            output = [
                NeMoGymResponseFunctionToolCall(
                    arguments=json.dumps({"count": asked}),
                    call_id=f"call_{uuid4().hex}",
                    name=self.config.tool,
                    type="function_call",
                    id=f"fc_{uuid4().hex}",
                    status="completed",
                )
            ]
        else:
            text = f"I was asked {asked} times."
            output = [
                NeMoGymResponseOutputMessage(
                    id=f"msg_{uuid4().hex}",
                    content=[NeMoGymResponseOutputText(annotations=[], text=text, type="output_text")],
                    role="assistant",
                    status="completed",
                    type="message",
                )
            ]
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=int(time()),
            model=self.config.model,
            object="response",
            output=output,
            tool_choice=body.tool_choice,
            parallel_tool_calls=body.parallel_tool_calls,
            tools=body.tools,
            usage=NeMoGymResponseUsage(
                input_tokens=10,
                input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=4),
                output_tokens=2,
                output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=1),
                total_tokens=12,
            ),
        )

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        last = body.messages[-1]["content"]
        return NeMoGymChatCompletion(
            id=f"chtcmpl-{uuid4().hex}",
            choices=[
                NeMoGymChoice(
                    finish_reason="stop",
                    index=0,
                    message=NeMoGymChatCompletionMessage(role="assistant", content=f"You said: {last}"),
                )
            ],
            created=int(time()),
            model=self.config.model,
            object="chat.completion",
        )


if __name__ == "__main__":
    ScriptedModel.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = ScriptedModel.run_webserver()
