"""Serve the Responses API from endpoints that speak Chat Completions, such as vLLM."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import orjson
from fastapi import FastAPI, Request
from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResponsesAPIModelConfig,
    DataError,
    EndpointError,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
    current_rollout_id,
    find_path,
)
from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.dialects.completions import standard_completion
from nemo_gym.dialects.endings import empty_completion, empty_response, ending_or_raise
from nemo_gym.dialects.headers import SentHeaders
from nemo_gym.dialects.responses import read_response, reading, without_reasoning
from nemo_gym.dialects.sendable import sendable
from nemo_gym.jsonl import JsonObject
from responses_api_models.vllm_model.audio import KEYS as AUDIO_KEYS
from responses_api_models.vllm_model.audio import with_audio
from responses_api_models.vllm_model.completions import complete_prompt
from responses_api_models.vllm_model.reasoning import SentReasoning, check_single_reasoning, with_sent_reasoning
from responses_api_models.vllm_model.routing import Routing
from responses_api_models.vllm_model.sampling import as_sampled, checked, layered, overridden
from responses_api_models.vllm_model.templates import NO_SUCH_ROUTE, EngineTemplate, LocalTemplate
from responses_api_models.vllm_model.tokens import (
    ASK_FOR_TOKENS,
    lacks_prompt_tokens,
    move_tokens_into_messages,
    span_since,
)

PER_REQUEST = ("extra_body", "chat_template_kwargs")
"""Keys of a request's `metadata` that hold settings as JSON objects."""


class VLLMModelConfig(BaseResponsesAPIModelConfig):
    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str | list[str]
    """The endpoint's address, up to and including `/v1`. With a list, a rollout stays with one unless it is busy."""
    api_key: str = Field(repr=False)
    model: str
    return_token_id_information: bool = False
    """Whether responses contain the token ids and log-probabilities that training needs."""
    uses_reasoning_parser: bool = True
    """Whether to convert reasoning in answers to reasoning items, or leave it in the text as `<think>…</think>`."""
    sequential_reasoning_allowed: bool = True
    """Whether an assistant turn may contain several reasoning items. If false, requests with such a turn fail."""
    sends_reasoning: SentReasoning = "think"
    """How to send earlier reasoning: `none` omits it, `think` sends `<think>…</think>`, other values name a field."""
    preserve_reasoning_in_assistant_content: bool | None = None
    """An alternative to `sends_reasoning`: true means `think`, and false replaces `think` with `reasoning_content`."""
    replace_developer_role_with_system: bool = False
    """Whether to send `developer` messages as `system`, for chat templates that do not support `developer`."""
    chat_template_kwargs: JsonObject | None = None
    """Arguments of the chat template, such as `{enable_thinking: false}`."""
    extra_body: JsonObject | None = None
    """Default request fields, such as `top_k`. They apply if the request does not set them."""
    sampling_overrides: JsonObject = Field(default_factory=dict)
    """Sampling parameters, such as `temperature`, that override those of requests. Null means the engine's default."""
    sends_strict: bool = False
    """Whether to send `strict` of tools, for engines that then enforce the schemas of the arguments, such as vLLM."""
    audio_root: Path | None = None
    """The folder of the files that `metadata.audio_path` and `audio_paths` of a request may name."""
    default_headers: SentHeaders = Field(default_factory=dict, repr=False)
    """Headers of every request to an endpoint, such as those that a gateway in front of it needs."""
    session_header: str | None = "X-Session-ID"
    """The header with the rollout's id, by which routers choose the engine with the rollout's earlier turns."""
    uses_completions_api: bool = False
    """Whether to send rendered prompts as tokens to `/completions` and parse the text that it returns."""
    partial_rollouts: Literal["restart", "continue"] = "restart"
    """What to do with an answer that the engine aborts: sample it again, or go on from the tokens sampled so far."""
    uses_responses_api: bool = False
    """Whether to forward `/v1/responses` requests to the endpoint's own `/responses` route."""
    tokenizer: Path | None = None
    """The folder of a tokenizer that renders prompts for `/completions`. Default: use the engine's `/tokenize`."""
    request_timeout_s: float = 1800.0
    """Seconds until a request to an endpoint times out."""
    request_tries: int = Field(default=3, ge=1)
    """Maximum number of attempts per call, if an endpoint is unreachable or returns 408, 409, 425, 429 or 5xx."""

    @property
    def sent_reasoning(self) -> SentReasoning:
        if self.preserve_reasoning_in_assistant_content:
            return "think"
        if self.preserve_reasoning_in_assistant_content is False and self.sends_reasoning == "think":
            return "reasoning_content"
        return self.sends_reasoning

    @field_validator("base_url")
    @classmethod
    def _at_least_one(cls, value: str | list[str]) -> str | list[str]:
        if not value:
            raise ValueError("at least one address is needed")
        return value

    @field_validator("sampling_overrides")
    @classmethod
    def _only_sampling(cls, value: JsonObject) -> JsonObject:
        return checked(value)

    @field_validator("audio_root", "tokenizer")
    @classmethod
    def _existing_folder(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        folder = find_path(value, Path.is_dir) if value else None
        if value and folder is None:
            raise ValueError(f"folder '{value}' not found. Create it, or leave {info.field_name} out")
        return folder

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.tokenizer and not self.uses_completions_api:
            raise ValueError("tokenizer needs uses_completions_api. Set it to true, or leave tokenizer out")
        if self.partial_rollouts == "continue" and not (
            self.uses_completions_api and self.return_token_id_information
        ):
            raise ValueError(
                "partial_rollouts: continue needs the tokens of an answer and a prompt of tokens. Set "
                "uses_completions_api and return_token_id_information to true"
            )
        if self.uses_responses_api and self.uses_completions_api:
            raise ValueError("uses_responses_api and uses_completions_api select different routes. Set only one")
        if self.uses_responses_api and self.return_token_id_information:
            raise ValueError("/responses returns no token ids. Leave out return_token_id_information")
        return self


class VLLMModel(SimpleResponsesAPIModel):
    config: VLLMModelConfig

    follows_policies = True

    @cached_property
    def endpoints(self) -> list[NeMoGymAsyncOpenAI]:
        config = self.config
        urls = [config.base_url] if isinstance(config.base_url, str) else config.base_url
        return [
            self.client_of(
                base_url=url,
                api_key=config.api_key,
                default_headers=config.default_headers,
                session_header=config.session_header,
                timeout_s=config.request_timeout_s,
                tries=config.request_tries,
                follows_policy=True,
            )
            for url in urls
        ]

    @cached_property
    def routing(self) -> Routing:
        return Routing(self.endpoints, is_shared=(self.config.num_workers or self.config.workers or 1) > 1)

    def client_of(self, **settings: Any) -> NeMoGymAsyncOpenAI:
        """Return the client of an endpoint. Subclasses may override this method to use another client class."""
        return NeMoGymAsyncOpenAI(**settings)

    @cached_property
    def converter(self) -> ResponsesConverter:
        return ResponsesConverter(
            return_token_id_information=self.config.return_token_id_information,
            uses_reasoning_parser=self.config.uses_reasoning_parser,
            sends_media=True,
        )

    @cached_property
    def local_template(self) -> LocalTemplate | None:
        return LocalTemplate(self.config.tokenizer) if self.config.tokenizer else None

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Send the request to the endpoint's `/chat/completions` and translate the reply to Responses.

        With `uses_responses_api`, forward it to `/responses`.
        """
        with reading(self.config.name):
            if self.config.uses_responses_api:
                with self._engine_of(request) as engine:
                    return await self._respond(engine, body)
            asked = self.converter.responses_to_chat_completion_create_params(body)
            if self.config.sends_strict:
                for sent, tool in zip(asked.tools or (), body.tools, strict=True):
                    sent["function"] |= {"strict": True} if tool.get("strict") else {}
            with self._engine_of(request) as engine:
                completion = await self._complete(engine, asked)
            return self.converter.chat_completion_to_response(
                as_sampled(body, self.config.sampling_overrides), completion
            )

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymChatCompletion:
        """Forward the request to the endpoint's `/chat/completions`."""
        with reading(self.config.name):
            with self._engine_of(request) as engine:
                completion = await self._complete(engine, body)
            if self.config.uses_reasoning_parser:
                for choice in completion["choices"]:
                    choice["message"] = self.converter.with_reasoning_in_content(choice["message"])
            return NeMoGymChatCompletion.model_validate(completion)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.state.counters = self._counters
        return app

    def _counters(self) -> Mapping[str, int]:
        # Some subclasses know their engines only from their first call on.
        return self.routing.counters() if "routing" in self.__dict__ else {}

    async def aclose(self) -> None:
        if "routing" in self.__dict__:
            await self.routing.aclose()
        for endpoint in self.endpoints:
            await endpoint.aclose()

    def _engine_of(self, request: Request) -> AbstractContextManager[NeMoGymAsyncOpenAI]:
        return self.routing.engine_of(current_rollout_id() or request.session[SESSION_ID_KEY])

    async def _complete(
        self, endpoint: NeMoGymAsyncOpenAI, body: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> JsonObject:
        fields = self._fields(body)
        if not self.config.sequential_reasoning_allowed:
            check_single_reasoning(fields["messages"])
        fields["messages"] = [with_sent_reasoning(each, self.config.sent_reasoning) for each in fields["messages"]]
        fields["messages"] = await with_audio(fields["messages"], body.metadata or {}, self.config.audio_root)
        began_at = time.time()
        try:
            if self.config.uses_completions_api:
                template = self.local_template or EngineTemplate(endpoint, fields["model"])
                continues = self.config.partial_rollouts == "continue"
                completion = await complete_prompt(endpoint, template, fields, continues=continues)
            else:
                completion = await endpoint.create_chat_completion(**fields)
        except EndpointError as error:
            return empty_completion(self._model, ending_or_raise(error))
        if completion is None:
            return empty_completion(self._model, "length")
        span = span_since(began_at, completion)
        completion = standard_completion(completion, url=endpoint.url, model=self._model, n=fields.get("n"))
        if self.config.return_token_id_information:
            prompt = await self._prompt_tokens(endpoint, fields) if lacks_prompt_tokens(completion) else None
            move_tokens_into_messages(completion, prompt, span, keeps_logprobs=bool(body.logprobs))
        return completion

    async def _respond(
        self, endpoint: NeMoGymAsyncOpenAI, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        metadata = dict(body.metadata or {})
        audio = next((key for key in AUDIO_KEYS if key in metadata), None)
        if audio is not None:
            raise DataError(
                f"metadata.{audio} cannot be sent to /responses. Leave out uses_responses_api, or write the audio "
                "into the input."
            )
        # Drop null fields, because earlier items that agents send back contain them, and some endpoints reject them.
        asked = body.model_dump(
            exclude_unset=True, exclude_none=True, exclude={"metadata", "stream", "stream_options"}
        )
        fields = self._merged(asked, metadata)
        if "max_tokens" in fields:
            fields["max_output_tokens"] = fields.pop("max_tokens")
        for_endpoint = {name: value for name, value in metadata.items() if name not in PER_REQUEST}
        if for_endpoint:
            fields["metadata"] = for_endpoint
        if self.config.replace_developer_role_with_system and isinstance(fields["input"], list):
            fields["input"] = _without_developer(fields["input"])
        if self.config.sent_reasoning == "none":
            fields["input"] = without_reasoning(fields["input"])
        try:
            answer = await endpoint.create_response(**fields)
        except EndpointError as error:
            answer = empty_response(self._model, ending_or_raise(error))
        return read_response(answer, model=self._model)

    @property
    def _model(self) -> str:
        return self.config.model

    def _merged(self, asked: JsonObject, metadata: Mapping[str, str]) -> JsonObject:
        """Return the fields to send: those of the request, merged with those of its metadata and of the config."""
        own = self.config.extra_body or {}
        for_this_request, template = (_settings(metadata, key) for key in PER_REQUEST)
        # The request has precedence over extra_body, because a trainer relies on the temperature that it requests.
        fields = layered(own, {name: value for name, value in asked.items() if value is not None})
        fields = overridden(layered(fields, for_this_request), self.config.sampling_overrides)
        fields["model"] = self._model
        sendable(fields)
        layers = [self.config.chat_template_kwargs, own.get("chat_template_kwargs")]
        layers += [for_this_request.get("chat_template_kwargs"), template]
        if any(layers):
            fields["chat_template_kwargs"] = {name: value for layer in layers for name, value in (layer or {}).items()}
        return fields

    def _fields(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> JsonObject:
        asked = body.model_dump(exclude_unset=True, exclude={"metadata", "stream", "stream_options"})
        fields = self._merged(asked, body.metadata or {})
        if "max_output_tokens" in fields:
            fields["max_tokens"] = fields.pop("max_output_tokens")
        if self.config.return_token_id_information:
            if fields.get("n", 1) != 1:
                raise DataError(
                    f"n is {fields['n']}, but return_token_id_information needs one answer per request. Leave n out, "
                    "and set num_repeats to repeat rollouts."
                )
            fields |= {**ASK_FOR_TOKENS, "top_logprobs": fields.get("top_logprobs") or 0}
        if self.config.replace_developer_role_with_system:
            fields["messages"] = _without_developer(fields["messages"])
        return fields

    async def _prompt_tokens(self, endpoint: NeMoGymAsyncOpenAI, fields: JsonObject) -> list[int]:
        names = ("model", "messages", "tools", "chat_template_kwargs")
        asked = {name: fields[name] for name in names if name in fields}
        try:
            tokens: list[int] = (await endpoint.create_tokenize(**asked)).get("tokens") or []
        except EndpointError as error:
            if error.status in NO_SUCH_ROUTE:
                return []
            raise
        return tokens


def _without_developer(messages: list[JsonObject]) -> list[JsonObject]:
    return [{**message, "role": "system"} if message.get("role") == "developer" else message for message in messages]


def _settings(metadata: Mapping[str, str], key: str) -> JsonObject:
    try:
        value = orjson.loads(metadata.get(key) or "{}")
    except orjson.JSONDecodeError as error:
        raise DataError(f"metadata.{key} of the request is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"metadata.{key} of the request must hold a JSON object")
    return value


if __name__ == "__main__":
    VLLMModel.run_webserver()
