"""Run the episodes of a verifiers taskset, with the policy of this run as their model."""

import asyncio
import socket
from functools import cached_property

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym import (
    AgentFailed,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
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
from responses_api_agents.verifiers_agent.place import WorkerSettings

SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}
"""Our names of sampling parameters, and those of verifiers."""


class VerifiersAgentConfig(WorkerSettings, BaseResponsesAPIAgentConfig):
    """The agent's settings: the model, those of the worker, and the limits of the episodes."""

    model_server: ModelServerRef
    """The policy, as `{type: responses_api_models, name: …}`."""
    model_name: str = "policy"
    """The name by which the episode calls the model."""
    max_concurrent: int = Field(default=16, ge=1)
    """The number of episodes at the same time. The others wait."""
    timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds for an episode, after which it is cancelled and the rollout fails."""


class VerifiersRunRequest(BaseRunRequest):
    """A row: the data of one of the taskset's tasks."""

    model_config = ConfigDict(extra="allow")

    taskset: str
    task: JsonObject


class VerifiersAgent(SimpleResponsesAPIAgent):
    """An agent that lets verifiers play and score an episode, in a worker process that serves all rollouts."""

    config: VerifiersAgentConfig

    async def startup(self) -> None:
        """Look for the interpreter, so that a missing one is reported at once."""
        self.config.interpreter()

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Reject the call, because an episode needs the task of a row."""
        raise InvalidTask(f"{self.config.name} plays the task of a row. Call /run instead of /v1/responses")

    async def run(self, request: Request, body: VerifiersRunRequest) -> Response:
        """Play the episode of a row, and return the row with its conversation and its rewards."""
        row: JsonObject = await request.json()
        if (given := body.taskset.partition("?")[0]) != self.config.ident:
            raise InvalidTask(
                f"{self.config.name} plays the taskset '{self.config.ident}', but the row is of '{given}'"
            )
        gateway = Gateway(
            self.server_client,
            self.config.model_server.name,
            model_prefix=self.url_path_for_run("", row),
            model_name=self.config.model_name,
        )
        keep_if_failed(gateway.items)
        async with self._gate:
            episode = await self._played(gateway, body.task, row["responses_create_params"])
        episode.check(gateway.failure)
        if not gateway.exchanges:
            raise AgentFailed(f"{self.config.name}: the episode used another model. Remove `client` from `env`")
        episode.add_tokens(gateway.exchanges)
        result = {**row, **episode.result(gateway.exchanges[-1], gateway.usage, row)}
        if self.config.skip_verification:
            result |= {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        return Response(dump_json(result), media_type="application/json")

    async def _played(self, gateway: Gateway, task: JsonObject, params: JsonObject) -> Episode:
        sampling = {theirs: params[ours] for ours, theirs in SAMPLING.items() if params.get(ours) is not None}
        if effort := (params.get("reasoning") or {}).get("effort"):
            sampling["reasoning_effort"] = effort
        listener = socket.create_server(("127.0.0.1", 0))
        try:
            async with gateway.serving(listener) as url, asyncio.timeout(self.config.timeout_s):
                asked = {"task": task, "base_url": f"{url}/v1", "model": gateway.model_name, "sampling": sampling}
                return Episode.of(await self._workers.play(asked))
        except TimeoutError:
            limit = f"{self.config.timeout_s:g} s (timeout_s)"
            raise RolloutTimedOut(f"the episode has not ended within {limit}", tier="environment") from None

    @cached_property
    def _gate(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.config.max_concurrent)

    @cached_property
    def _workers(self) -> Workers:
        return Workers(self.config)

    async def close_owned(self) -> None:
        await super().close_owned()
        await self._workers.close()


if __name__ == "__main__":
    VerifiersAgent.run_webserver()
