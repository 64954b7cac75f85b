"""Forward every call to an endpoint that supports the Responses API."""

from collections.abc import Mapping
from functools import cached_property

import orjson
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    EndpointError,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
)
from nemo_gym.dialects.completions import standard_completion
from nemo_gym.dialects.endings import Ending, empty_completion, empty_response, ending_or_raise
from nemo_gym.dialects.headers import SentHeaders
from nemo_gym.dialects.responses import read_response, reading, without_reasoning
from nemo_gym.dialects.sendable import sendable
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact


class SimpleModelServerConfig(BaseResponsesAPIModelConfig):
    """The settings of the endpoint, its API key and the model."""

    model_config = ConfigDict(hide_input_in_errors=True)

    openai_base_url: str
    """The endpoint's address, up to and including `/v1`."""
    openai_api_key: str = Field(repr=False)
    openai_model: str
    openai_default_headers: SentHeaders = Field(default_factory=dict, repr=False)
    """Headers of every request to the endpoint, such as those that a gateway in front of it needs."""
    drop_input_reasoning_items: bool = False
    """Whether to leave out earlier reasoning, for endpoints that reject reasoning of another endpoint."""
    extra_body: JsonObject = Field(default_factory=dict)
    """Default request fields, such as `temperature`. They apply if the request does not set them."""
    request_timeout_s: float = 1800.0
    """Seconds until a request to the endpoint times out."""
    request_tries: int = Field(default=3, ge=1)
    """Maximum number of attempts per call, if the endpoint is unreachable or returns 408, 409, 425, 429 or 5xx."""


class SimpleModelServer(SimpleResponsesAPIModel):
    """A model server that forwards every request to the endpoint."""

    config: SimpleModelServerConfig

    passes_on = True
    follows_policies = True

    @cached_property
    def endpoint(self) -> NeMoGymAsyncOpenAI:
        return NeMoGymAsyncOpenAI(
            base_url=self.config.openai_base_url,
            api_key=self.config.openai_api_key,
            default_headers=self.config.openai_default_headers,
            timeout_s=self.config.request_timeout_s,
            tries=self.config.request_tries,
            follows_policy=True,
        )

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Forward the request to the endpoint's `/responses`."""
        try:
            answer = await self.endpoint.create_response(**self._fields(body))
        except EndpointError as error:
            answer = empty_response(self.config.openai_model, self._ending(error))
        with reading(self.config.name):
            return read_response(answer, model=self.config.openai_model)

    async def pass_on(self, params: Mapping[str, object], items: memoryview) -> bytes:
        """Forward the request to `/responses` without parsing the items or the reply."""
        if self.config.drop_input_reasoning_items:
            items = memoryview(dump_json(without_reasoning(loads_exact(bytes(items)))))
        answering = self.endpoint.ask("responses", self._with_own(params), items)
        # Free the items, which are as large as the request, while the model works.
        del items
        try:
            return await answering
        except EndpointError as error:
            return orjson.dumps(empty_response(self.config.openai_model, self._ending(error)))

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """Forward the request to the endpoint's `/chat/completions`."""
        return await self._completed(self.endpoint, body)

    async def aclose(self) -> None:
        await self.endpoint.aclose()

    async def _completed(
        self, endpoint: NeMoGymAsyncOpenAI, body: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymChatCompletion:
        fields, model = self._fields(body), self.config.openai_model
        n = fields.get("n")
        try:
            answer = await endpoint.create_chat_completion(**fields)
        except EndpointError as error:
            answer = empty_completion(model, self._ending(error))
        with reading(self.config.name):
            return NeMoGymChatCompletion.model_validate(
                standard_completion(answer, url=endpoint.url, model=model, n=n)
            )

    def _ending(self, error: EndpointError) -> Ending:
        """Return how the conversation ends. Raise the error if it is a failure."""
        return ending_or_raise(error)

    def _fields(self, body: BaseModel) -> JsonObject:
        # Drop null fields, because some endpoints reject them. The items that agents send back contain such fields.
        asked = body.model_dump(exclude_unset=True, exclude_none=True, exclude={"stream", "stream_options"})
        if self.config.drop_input_reasoning_items and "input" in asked:
            asked["input"] = without_reasoning(asked["input"])
        return self._with_own(asked)

    def _with_own(self, asked: Mapping[str, object]) -> JsonObject:
        return sendable({**self.config.extra_body, **asked, "model": self.config.openai_model})


if __name__ == "__main__":
    SimpleModelServer.run_webserver()
