"""Call engines that may crash and restart: a lost call is repeated as soon as its engine is ready again."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import Protocol, TypeVar

from nemo_gym import (
    EndpointError,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.jsonl import JsonObject
from responses_api_models.vllm_model.app import VLLMModel

AnswerT = TypeVar("AnswerT")
CRASH_PATIENCE_S = 5.0
"""Seconds to wait after a lost connection to see whether the engine has crashed."""


class RestartedEngine(Protocol):
    """An engine that is restarted after a crash, by this server or by another one."""

    @property
    def url(self) -> str: ...

    @property
    def restarts(self) -> int: ...

    async def wait_until_ready(self) -> None: ...

    async def has_ended(self, restarts: int, within_s: float) -> bool: ...


class ModelOfEngines(VLLMModel):
    """A `vllm_model` server whose endpoints are engines that are restarted after a crash."""

    @property
    def engines(self) -> Sequence[RestartedEngine]:
        raise NotImplementedError

    # Ignore a row's own policy endpoint, because this server calls only its engines.
    follows_policies = False

    @cached_property
    def endpoints(self) -> list[NeMoGymAsyncOpenAI]:
        config = self.config
        return [
            NeMoGymAsyncOpenAI(
                base_url="",
                api_key=config.api_key,
                default_headers=config.default_headers,
                session_header=config.session_header,
                timeout_s=config.request_timeout_s,
                tries=config.request_tries,
            )
            for _ in self.engines
        ]

    async def _complete(
        self, endpoint: NeMoGymAsyncOpenAI, body: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> JsonObject:
        return await self._despite_crashes(endpoint, partial(super()._complete, endpoint, body))

    async def _respond(
        self, endpoint: NeMoGymAsyncOpenAI, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        return await self._despite_crashes(endpoint, partial(super()._respond, endpoint, body))

    async def _despite_crashes(self, endpoint: NeMoGymAsyncOpenAI, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Make a call, and repeat it if the engine crashes. Repeating is safe, because calls have no side effects."""
        engine = next(one for one, client in zip(self.engines, self.endpoints, strict=True) if client is endpoint)
        while True:
            await engine.wait_until_ready()
            endpoint.base_url, restarts = engine.url, engine.restarts
            try:
                return await call()
            except EndpointError as error:
                if error.status is not None or not await engine.has_ended(restarts, CRASH_PATIENCE_S):
                    raise
