"""Serve a policy that acts at random, without weights or an endpoint."""

from collections.abc import Callable
from functools import cached_property
from random import Random
from typing import NamedTuple

from fastapi import HTTPException
from pydantic import Field

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
    current_rollout_id,
)
from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.ask import Ask, RequestError, ask_of_chat, ask_of_responses, prompt_of_responses
from responses_api_models.sample_model.policy import Habits, Policy, Reply
from responses_api_models.sample_model.tokens import tokens_of

ANSWERS = [
    r"The answer is \boxed{A}",
    r"The answer is \boxed{B}",
    r"The answer is \boxed{C}",
    r"The answer is \boxed{D}",
    "Answer: C",
    "I am not sure, but I think it is 42.",
]
ECHOED = (
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "parallel_tool_calls", "temperature", "text",
    "tool_choice", "tools", "top_p", "user",
)  # fmt: skip
"""Request fields that the response repeats."""
NO_TIME = 0
"""The creation time of every response, so that a repeated rollout is identical byte for byte."""


class SampleModelConfig(BaseResponsesAPIModelConfig):
    seed: int | None = 0
    """The same seed gives the same rollouts. If it is null, rollouts differ between runs."""
    answers: list[str] = Field(default=ANSWERS, min_length=1)
    """The answers to choose from if no tool is called and the request does not set a JSON schema for the answer."""
    tool_call_probability: float = Field(default=0.75, ge=0, le=1)
    """The probability of a tool call if the request allows both a call and an answer."""
    max_calls_per_turn: int = Field(default=2, ge=1)
    max_tool_turns: int = Field(default=4, ge=0)
    """Maximum number of turns with tool calls. The model then answers, unless the request requires a call."""
    return_token_id_information: bool = False
    """Whether replies have token ids and log-probabilities, to try the code of a trainer."""


class Drawn(NamedTuple):
    """The replies to one request, and the number of words in its conversation."""

    replies: list[Reply]
    words_read: int


class SampleModel(SimpleResponsesAPIModel):
    config: SampleModelConfig

    @cached_property
    def policy(self) -> Policy:
        return Policy(
            Habits(
                answers=tuple(self.config.answers),
                tool_call_probability=self.config.tool_call_probability,
                max_calls_per_turn=self.config.max_calls_per_turn,
                max_tool_turns=self.config.max_tool_turns,
            )
        )

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Return calls of the request's tools, or an answer."""
        asked = body.model_dump(exclude_unset=True)
        (reply,), words_read = self._replies(ask_of_responses, asked)
        usage = {"input_tokens": words_read, "output_tokens": reply.words, "total_tokens": words_read + reply.words}
        output = _output_items(reply)
        if self.config.return_token_id_information:
            output[-1] |= tokens_of(prompt_of_responses(asked), output, self.config.seed)
        return NeMoGymResponse.model_validate(
            {
                **{field: asked[field] for field in ECHOED if field in asked},
                "id": f"resp_{reply.id}",
                "created_at": NO_TIME,
                "model": body.model or self.config.name,
                "status": "completed",
                "output": output,
                "usage": usage,
            }
        )

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """Return calls of the request's tools, or an answer, for each of the `n` choices."""
        asked = body.model_dump(exclude_unset=True)
        replies, words_read = self._replies(ask_of_chat, asked, count=body.n or 1)
        choices = [_choice(index, reply) for index, reply in enumerate(replies)]
        if self.config.return_token_id_information:
            for choice in choices:
                message = choice["message"]
                message |= tokens_of(asked["messages"], [message], self.config.seed)
        words = sum(reply.words for reply in replies)
        usage = {"prompt_tokens": words_read, "completion_tokens": words, "total_tokens": words_read + words}
        return NeMoGymChatCompletion.model_validate(
            {
                "id": f"chatcmpl-{replies[0].id}",
                "created": NO_TIME,
                "model": body.model or self.config.name,
                "choices": choices,
                "usage": usage,
            }
        )

    def _replies(self, read: Callable[[JsonObject], Ask], asked: JsonObject, count: int = 1) -> Drawn:
        """Draw `count` replies. With a seed, they depend only on the request, the seed, the rollout and the turn."""
        try:
            ask = read(asked)
            seed = self.config.seed
            rng = Random() if seed is None else Random(f"{seed}:{current_rollout_id()}:{ask.conversation.turns}")
            return Drawn([self.policy.reply(ask, rng) for _ in range(count)], ask.conversation.words)
        except RequestError as error:
            raise HTTPException(422, detail=str(error)) from error


def _output_items(reply: Reply) -> list[JsonObject]:
    if reply.calls:
        return [
            {
                "type": "function_call",
                "id": f"fc_{call.id}",
                "call_id": f"call_{call.id}",
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
            for call in reply.calls
        ]
    content = [{"type": "output_text", "text": reply.text, "annotations": []}]
    fields = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "status": "completed"}
    return [{**fields, "content": content}]


def _choice(index: int, reply: Reply) -> JsonObject:
    calls = [
        {"id": f"call_{call.id}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    if calls:
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return {"index": index, "finish_reason": "tool_calls", "message": message}
    return {"index": index, "finish_reason": "stop", "message": {"role": "assistant", "content": reply.text}}


if __name__ == "__main__":
    SampleModel.run_webserver()
