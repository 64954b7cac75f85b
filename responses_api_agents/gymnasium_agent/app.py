"""The agent for games: after a reset, model and environment alternate until the game is over."""

import orjson
from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
    BaseStepResponse,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ResourcesServerRef,
    SimpleResponsesAPIAgent,
    relayed_metrics,
)
from nemo_gym.jsonl import JsonObject
from responses_api_agents.gymnasium_agent.environment import Game
from responses_api_agents.gymnasium_agent.transcript import Transcript


class GymnasiumAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=100, ge=1)
    """The maximum number of model turns. At this limit, the game ends with the sum of the rewards so far."""


class GymnasiumAgentRunRequest(BaseRunRequest):
    """A dataset row, with any further fields that the game needs."""

    model_config = ConfigDict(extra="allow")


class GymnasiumAgent(SimpleResponsesAPIAgent):
    """An agent that starts a game, alternates between model and environment, and adds up the rewards."""

    config: GymnasiumAgentConfig

    EPISODE_ROUTES = ("/reset", "/step")

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Return the model's next turn only. A game needs a row, so use `/run` for a rollout."""
        transcript = Transcript.of(body.model_dump(mode="json", exclude_unset=True), None)
        path = self.url_path_for_request("/v1/responses", request)
        turn = await transcript.ask(self.server_client, self.config.model_server.name, path)
        return NeMoGymResponse.model_validate(turn)

    async def run(self, request: Request, body: GymnasiumAgentRunRequest) -> Response:
        """Play the row's game and return the row with the response and the sum of the rewards."""
        row: JsonObject = await request.json()
        game = Game(self.server_client, self.config.resources_server.name, row, dict(request.cookies))
        try:
            played = await self._play(game, row)
        finally:
            await game.close()
        if self.config.skip_verification:
            played |= {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        return Response(orjson.dumps({**row, **played}), media_type="application/json")

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the resources server's metrics of all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        return await relayed_metrics(self.server_client, self.config.resources_server.name, body)

    async def _play(self, game: Game, row: JsonObject) -> JsonObject:
        begun = await game.reset()
        transcript = Transcript.of(row["responses_create_params"], begun.observation)
        path = self.url_path_for_run("/v1/responses", row)
        reward, steps, last = 0.0, 0, BaseStepResponse()
        # Count a truncated answer as a turn, because only the game can decide whether the answer is usable.
        while not (last.terminated or last.truncated) and steps < (self.config.max_steps or 2**31):
            last = await game.step(await transcript.ask(self.server_client, self.config.model_server.name, path))
            transcript.add_step(last)
            reward, steps = reward + last.reward, steps + 1
        ending = {"terminated": last.terminated, "truncated": last.truncated}
        played = {"response": transcript.response, "reward": reward, "steps": steps, **ending}
        if begun.observation is not None:
            # Record the input that the model got, because the row lacks the first observation.
            played["responses_create_params"] = {**transcript.params, "input": transcript.given}
        return played


if __name__ == "__main__":
    GymnasiumAgent.run_webserver()
