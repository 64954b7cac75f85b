"""Score answers with a reward model, either behind an endpoint or embedded in this server."""

import asyncio
import time
from functools import cached_property
from typing import Literal, Protocol
from uuid import uuid4

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    DataError,
    ModelFailed,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
)
from nemo_gym.grading import SpecialTokens
from nemo_gym.jsonl import JsonObject
from responses_api_models.reward_model.endpoint import CONTENT, EndpointScorer, MessageTemplate
from responses_api_models.reward_model.exchange import Exchange, Message
from responses_api_models.reward_model.linear import LinearScorer

SHORTEST_TOKEN = 2


class RewardModelConfig(BaseResponsesAPIModelConfig):
    model_config = ConfigDict(hide_input_in_errors=True)

    api: Literal["vllm_score", "vllm_classify", "vllm_pooling", "plain", "embedded"]
    base_url: str | None = None
    """The endpoint's address, with or without `/v1`. For `plain`, the full URL to which requests are posted."""
    api_key: str = Field("", repr=False)
    model: str | None = None
    sends_messages: bool = True
    """Whether to send messages to `/classify` and `/pooling`. The endpoint then applies the chat template to them."""
    message_template: str = "{role}: {content}"
    """The template that formats a message as text, for `/score` and, if `sends_messages` is off, other vLLM APIs."""
    class_index: int = -1
    """For `/classify`, the index of the class whose probability is the score. -1 is the last class."""
    special_tokens: list[str] = Field(default_factory=list)
    """The model's special tokens in addition to the common ones. They are escaped in all texts."""
    extra_body: JsonObject = Field(default_factory=dict)
    """Additional request fields, such as `truncate_prompt_tokens`."""
    request_timeout_s: float = Field(300.0, gt=0)
    """Seconds until a request for one score times out."""
    request_tries: int = Field(3, ge=1)
    """Maximum number of attempts per score, if the endpoint is unreachable or returns 408, 409, 425, 429 or 5xx."""

    @field_validator("message_template")
    @classmethod
    def _has_content(cls, template: str) -> str:
        if CONTENT not in template:
            raise ValueError("the template must contain {content}")
        return template

    @field_validator("special_tokens")
    @classmethod
    def _are_tokens(cls, tokens: list[str]) -> list[str]:
        for token in tokens:
            if len(token) < SHORTEST_TOKEN or token != token.strip():
                raise ValueError(f"{token!r} is too short for a special token, or begins or ends with a space")
        return tokens

    @model_validator(mode="after")
    def _endpoint_fits(self) -> "RewardModelConfig":
        given = {"base_url": self.base_url, "model": self.model}
        needed = {"embedded": (), "plain": ("base_url",)}.get(self.api, given)
        missing = [name for name in needed if not given[name]]
        if missing:
            raise ValueError(f"api: {self.api} needs {' and '.join(missing)}")
        if self.api == "embedded" and any(given.values()):
            raise ValueError(
                "api: embedded does not call an endpoint, but base_url or model is set. Remove both. If a config file "
                "sets them for an endpoint, list that file after the one that includes the embedded model"
            )
        return self


class ScoreInput(BaseModel):
    """An answer, and the prompt that it answers."""

    prompt: str | list[Message]
    answer: str


class ScoreRequest(BaseModel):
    inputs: list[ScoreInput] = Field(min_length=1)


class ScoreReply(BaseModel):
    """One score per input, in the same order."""

    scores: list[float]
    model: str


class Scorer(Protocol):
    async def score(self, exchange: Exchange) -> float: ...

    async def aclose(self) -> None: ...


class RewardModel(SimpleResponsesAPIModel):
    """A model server that returns a score: a number from `/score`, and text from the routes of the OpenAI API."""

    config: RewardModelConfig

    @cached_property
    def scorer(self) -> Scorer:
        config, special_tokens = self.config, SpecialTokens(self.config.special_tokens)
        if config.api == "embedded":
            return LinearScorer(special_tokens)
        endpoint = NeMoGymAsyncOpenAI(
            base_url=config.base_url or "",
            api_key=config.api_key,
            timeout_s=config.request_timeout_s,
            tries=config.request_tries,
        )
        return EndpointScorer(
            config.api,
            endpoint,
            special_tokens,
            fields={**config.extra_body, **({"model": config.model} if config.model else {})},
            template=MessageTemplate(config.message_template),
            sends_messages=config.sends_messages,
            class_index=config.class_index,
        )

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/score")(self.score)
        return app

    async def score(self, body: ScoreRequest) -> ScoreReply:
        """Return the score of each answer. If one cannot be scored, the call fails."""
        exchanges = [Exchange.of_prompt(each.prompt, each.answer) for each in body.inputs]
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._score(each)) for each in exchanges]
        except ExceptionGroup as failures:
            # Raise only the first error, because callers do not handle exception groups.
            raise failures.exceptions[0] from failures
        return ScoreReply(scores=[task.result() for task in asked], model=self._model)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Return the score of the conversation's last assistant message, as text and in `metadata`."""
        asked = body.model_dump(exclude_unset=True)
        items = asked["input"]
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        if instructions := asked.get("instructions"):
            items = [{"role": "system", "content": instructions}, *items]
        score = repr(await self._score_of_conversation(items))
        content = [{"type": "output_text", "text": score, "annotations": []}]
        message = {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant", "content": content}
        return NeMoGymResponse.model_validate(
            {
                "id": f"resp_{uuid4().hex}",
                "created_at": int(time.time()),
                "model": self._model,
                "status": "completed",
                "output": [{**message, "status": "completed"}],
                "metadata": {**(asked.get("metadata") or {}), "score": score},
            }
        )

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """Return the score of the conversation's last assistant message, as text."""
        score = repr(await self._score_of_conversation(body.model_dump(exclude_unset=True)["messages"]))
        message = {"role": "assistant", "content": score}
        return NeMoGymChatCompletion.model_validate(
            {
                "id": f"chatcmpl-{uuid4().hex}",
                "created": int(time.time()),
                "model": self._model,
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            }
        )

    async def aclose(self) -> None:
        await self.scorer.aclose()

    @property
    def _model(self) -> str:
        return self.config.model or self.config.name

    async def _score_of_conversation(self, messages: list[JsonObject]) -> float:
        try:
            exchange = Exchange.of_conversation(messages)
        except DataError as error:
            raise ModelFailed(f"{self.config.name}: {error}", server=self.config.name) from error
        return await self._score(exchange)

    async def _score(self, exchange: Exchange) -> float:
        try:
            return await self.scorer.score(exchange)
        except DataError as error:
            raise ModelFailed(f"{self.config.name}: {error}", server=self.config.name) from error


if __name__ == "__main__":
    RewardModel.run_webserver()
