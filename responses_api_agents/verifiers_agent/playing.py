"""Play the episodes of another framework in a worker, with the policy of this run as their model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import ClassVar

from fastapi import Response
from pydantic import Field

from nemo_gym import (
    AgentFailed,
    BaseResponsesAPIAgentConfig,
    InvalidTask,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    RolloutTimedOut,
    SimpleResponsesAPIAgent,
    keep_if_failed,
)
from nemo_gym.harness import Gateway
from nemo_gym.jsonl import JsonObject, dump_json
from responses_api_agents.verifiers_agent.episode import Episode
from responses_api_agents.verifiers_agent.link import Workers
from responses_api_agents.verifiers_agent.place import WorkerPlace

SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}
"""Our names of sampling parameters, and those of both frameworks."""


class PlayingConfig(WorkerPlace, BaseResponsesAPIAgentConfig):
    """The agent's settings: the model, those of the worker, and the limits of the episodes."""

    model_server: ModelServerRef
    """The policy, as `{type: responses_api_models, name: …}`."""
    model_name: str = "policy"
    """The name by which the episode calls the model."""
    max_concurrent: int = Field(default=16, ge=1)
    """The number of episodes at the same time. The others wait."""
    timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds for an episode, after which it is cancelled and the rollout fails."""


class PlayingAgent(SimpleResponsesAPIAgent):
    """An agent that lets another framework play and score an episode, in a worker process that serves all rollouts."""

    config: PlayingConfig
    other_model: ClassVar[str]
    """The advice for an episode that has not called the policy."""

    async def startup(self) -> None:
        """Look for the interpreter, so that a missing one is reported at once."""
        self.config.interpreter()

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Reject the call, because an episode needs the task of a row."""
        raise InvalidTask(f"{self.config.name} plays the task of a row. Call /run instead of /v1/responses")

    async def play(self, row: JsonObject, address: str, task: JsonObject) -> Response:
        """Play the episode of a row, and return the row with its conversation and its rewards.

        `address` names the tasks that the row is from, and `task` is what the worker has to know of it.
        """
        if (given := address.partition("?")[0]) != self.config.ident:
            plays = f"{self.config.framework.plays} '{self.config.ident}'"
            raise InvalidTask(f"{self.config.name} plays the {plays}, but the row is of '{given}'")
        gateway = Gateway(
            self.server_client,
            self.config.model_server.name,
            model_prefix=self.url_path_for_run("", row),
            model_name=self.config.model_name,
        )
        keep_if_failed(gateway.items)
        async with self._gate:
            episode = await self._played(gateway, task, row["responses_create_params"])
        episode.check(gateway.failure)
        if not gateway.exchanges:
            raise AgentFailed(f"{self.config.name}: the episode used another model. {self.other_model}")
        episode.add_tokens(gateway.exchanges)
        result = {**row, **episode.result(gateway.exchanges[-1], gateway.usage, row)}
        if self.config.skip_verification:
            result |= {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        return Response(dump_json(result), media_type="application/json")

    @asynccontextmanager
    async def other_addresses(self) -> AsyncIterator[JsonObject]:
        """Serve what an episode needs besides its policy, and yield what the worker has to know of it."""
        yield {}

    async def _played(self, gateway: Gateway, task: JsonObject, params: JsonObject) -> Episode:
        sampling = {theirs: params[ours] for ours, theirs in SAMPLING.items() if params.get(ours) is not None}
        if effort := (params.get("reasoning") or {}).get("effort"):
            sampling["reasoning_effort"] = effort
        try:
            limit = asyncio.timeout(self.config.timeout_s)
            async with served(gateway) as url, self.other_addresses() as others, limit:
                asked = {**task, **others, "base_url": url, "model": gateway.model_name, "sampling": sampling}
                return Episode.of(self.config.framework.name, await self._workers.play(asked))
        except TimeoutError:
            limit_s = f"{self.config.timeout_s:g} s (timeout_s)"
            raise RolloutTimedOut(f"the episode has not ended within {limit_s}", tier="environment") from None

    @cached_property
    def _gate(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.config.max_concurrent)

    @cached_property
    def _workers(self) -> Workers:
        return Workers(self.config)

    async def close_owned(self) -> None:
        await super().close_owned()
        await self._workers.close()


@asynccontextmanager
async def served(gateway: Gateway) -> AsyncIterator[str]:
    """Serve a gateway on a free port of this machine, and yield the address of its model API."""
    listener = socket.create_server(("127.0.0.1", 0))
    async with gateway.serving(listener) as url:
        yield f"{url}/v1"
