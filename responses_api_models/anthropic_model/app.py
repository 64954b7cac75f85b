"""Serve the Responses API from a model behind Anthropic's Messages API."""

from functools import cached_property

from pydantic import ConfigDict, Field, field_validator

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    EndpointError,
    ModelFailed,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
)
from nemo_gym.dialects.anthropic_answers import PAUSED, joined, response_of_message
from nemo_gym.dialects.anthropic_events import message_of_events
from nemo_gym.dialects.anthropic_requests import MessageSettings, message_params
from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.dialects.endings import ending_or_raise
from nemo_gym.dialects.responses import reading
from nemo_gym.jsonl import JsonObject
from responses_api_models.anthropic_model.chat import completion_of_response

CONVERTER = ResponsesConverter(return_token_id_information=False)
STOP_REASONS = {"length": "model_context_window_exceeded", "content_filter": "refusal"}
MAX_PAUSES = 16
"""Maximum number of requests that continue one paused answer."""


class AnthropicModelConfig(BaseResponsesAPIModelConfig):
    """The settings of the endpoint, its API key and the model."""

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str
    """The endpoint's address, with or without `/v1` at its end."""
    api_key: str = Field(repr=False)
    key_header: str = "x-api-key"
    """The header that contains the API key. `Authorization` sends it as a bearer token, as some gateways expect."""
    model: str
    max_tokens: int = Field(default=32_000, ge=1)
    """The token limit of answers to requests without `max_output_tokens`. The Messages API requires a limit."""
    anthropic_version: str = "2023-06-01"
    anthropic_beta: list[str] = Field(default_factory=list)
    """Names of beta features, sent in the header `anthropic-beta`."""
    stream: bool = True
    """Whether to stream the answer. Without streaming, the endpoint rejects requests for long answers."""
    strict_tools: bool = False
    """Whether to send each tool's `strict` field, which older models reject."""
    thinking_budgets: dict[str, int] | None = None
    """The thinking token budget for each reasoning effort, for models that do not support `effort`."""
    extra_body: JsonObject = Field(default_factory=dict)
    """Default request fields, such as `thinking` or `top_k`. They apply if the request does not set them."""
    omitted_fields: list[str] = Field(default_factory=list)
    """Fields that are never sent, such as `temperature` and `top_p`, which the newest models reject."""
    request_timeout_s: float = 1800.0
    """Seconds until a request to the endpoint times out."""
    request_tries: int = Field(default=3, ge=1)
    """Maximum number of attempts per call, if the endpoint is unreachable or returns 408, 409, 425, 429 or 5xx."""

    @field_validator("base_url")
    @classmethod
    def _with_version(cls, value: str) -> str:
        return f"{value.rstrip('/').removesuffix('/v1')}/v1"

    @field_validator("extra_body")
    @classmethod
    def _has_no_limit(cls, value: JsonObject) -> JsonObject:
        if "max_tokens" in value:
            raise ValueError("max_tokens has no effect here. Write it next to extra_body, as the server's own setting")
        return value


class AnthropicModel(SimpleResponsesAPIModel):
    """A model server that translates requests to the Messages API, and translates the answers back."""

    config: AnthropicModelConfig

    follows_policies = True

    @cached_property
    def endpoint(self) -> NeMoGymAsyncOpenAI:
        config = self.config
        headers = {"anthropic-version": config.anthropic_version}
        if config.anthropic_beta:
            headers["anthropic-beta"] = ",".join(config.anthropic_beta)
        return NeMoGymAsyncOpenAI(
            base_url=config.base_url,
            api_key=config.api_key,
            key_header=config.key_header,
            default_headers=headers,
            timeout_s=config.request_timeout_s,
            tries=config.request_tries,
            follows_policy=True,
        )

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Send the request to the endpoint's `/messages` and translate the answer."""
        return await self._respond(body)

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """Send the request to the endpoint's `/messages` and translate the answer to a completion."""
        with reading(self.config.name):
            params = CONVERTER.chat_completion_to_responses_create_params(body)
        if (body.n or 1) != 1:
            raise ModelFailed(
                f"{self.config.name}: n is {body.n}, but the Messages API gives one answer per request. Set n to 1"
            )
        stops = [body.stop] if isinstance(body.stop, str) else body.stop
        return completion_of_response(await self._respond(params, stop_sequences=stops))

    async def aclose(self) -> None:
        await self.endpoint.aclose()

    async def _respond(
        self, params: NeMoGymResponseCreateParamsNonStreaming, stop_sequences: list[str] | None = None
    ) -> NeMoGymResponse:
        config = self.config
        settings = MessageSettings(config.max_tokens, config.strict_tools, config.thinking_budgets)
        with reading(config.name):
            asked = message_params(params, settings)
            if stop_sequences:
                asked["stop_sequences"] = stop_sequences
            return response_of_message(await self._message(self._with_own(asked)), params)

    def _with_own(self, asked: JsonObject) -> JsonObject:
        own = self.config.extra_body
        fields = {**own, **asked, "model": self.config.model}
        if "output_config" in own and "output_config" in asked:
            fields["output_config"] = {**own["output_config"], **asked["output_config"]}
        if self.config.stream:
            fields["stream"] = True
        return {name: value for name, value in fields.items() if name not in self.config.omitted_fields}

    async def _message(self, asked: JsonObject) -> JsonObject:
        """Return the endpoint's answer. If the endpoint paused it, request the continuations and join them."""
        answer = await self._call(asked)
        for _ in range(MAX_PAUSES):
            if answer.get("stop_reason") != PAUSED:
                break
            paused = {"role": "assistant", "content": answer["content"]}
            container = {"container": answer["container"]["id"]} if answer.get("container") else {}
            again = {**asked, **container, "messages": [*asked["messages"], paused]}
            answer = joined(answer, await self._call(again))
        return answer

    async def _call(self, asked: JsonObject) -> JsonObject:
        try:
            return await self.endpoint.create_message(read=message_of_events, **asked)
        except EndpointError as error:
            stop_reason = STOP_REASONS[ending_or_raise(error)]
            return {"content": [], "model": self.config.model, "stop_reason": stop_reason}


if __name__ == "__main__":
    AnthropicModel.run_webserver()
