"""The agent for games: after a reset, model and environment alternate until the game is over."""

import math
from collections.abc import Iterable
from functools import reduce

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import ConfigDict, Field, field_validator

from nemo_gym import (
    AgentServerRef,
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResetResponse,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
    BaseStepResponse,
    DataError,
    EnvironmentFailed,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ResourcesServerRef,
    SimpleResponsesAPIAgent,
    accumulate_response_usage,
    relayed_metrics,
)
from nemo_gym.jsonl import JsonObject
from responses_api_agents.gymnasium_agent.environment import Game
from responses_api_agents.gymnasium_agent.transcript import Transcript


class Player(AgentServerRef):
    """An agent that plays. Only its `/v1/responses` is called."""

    trainable: bool = True
    """Whether the player's response and reward are in `roles` of the result, for a trainer."""


class GymnasiumAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=100, ge=1)
    """The maximum number of model turns. At this limit, the game ends with the sum of the rewards so far."""
    players: list[Player] = Field(default_factory=list)
    """The agents that play a game of several players, in the order of its players. Each is a role of the rollout.

    Without it, `model_server` plays alone."""

    @field_validator("players")
    @classmethod
    def _are_different(cls, players: list[Player]) -> list[Player]:
        if len({each.name for each in players}) < len(players):
            raise ValueError("two players have the same agent. Give each player a block of its own")
        if len(players) == 1:
            raise ValueError(
                "a game of several agents needs two or more players. Leave `players` out for a single one"
            )
        return players


class GymnasiumAgentRunRequest(BaseRunRequest):
    """A dataset row, with any further fields that the game needs."""

    model_config = ConfigDict(extra="allow")


class GymnasiumAgent(SimpleResponsesAPIAgent):
    """An agent that starts a game, alternates between model and environment, and adds up the rewards."""

    config: GymnasiumAgentConfig

    EPISODE_ROUTES = ("/reset", "/step")

    def setup_webserver(self) -> FastAPI:
        """Return the app. Check the names of the players first, so that an error is reported at startup."""
        known = self.server_client.address_book.servers
        if unknown := [each.name for each in self.config.players if known and each.name not in known]:
            raise DataError(f"{self.config.name}.players: '{unknown[0]}' is not one of the run's: {', '.join(known)}.")
        return super().setup_webserver()

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Return the model's next turn only. A game needs a row, so use `/run` for a rollout."""
        transcript = Transcript.of(body.model_dump(mode="json", exclude_unset=True))
        path = self.url_path_for_request("/v1/responses", request)
        turn = await transcript.ask(self.server_client, self.config.model_server.name, path)
        return NeMoGymResponse.model_validate(turn)

    async def run(self, request: Request, body: GymnasiumAgentRunRequest) -> Response:
        """Play the row's game and return the row with the response and the sum of the rewards."""
        row: JsonObject = await request.json()
        named = {"roles": [each.name for each in self.config.players]} if self.config.players else {}
        game = Game(self.server_client, self.config.resources_server.name, row | named, dict(request.cookies))
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
        params, path = row["responses_create_params"], self.url_path_for_run("/v1/responses", row)
        players = [each.name for each in self.config.players] or [self.config.model_server.name]
        transcripts = {name: Transcript.of(params) for name in players}
        rewards = dict.fromkeys(players, 0.0)
        turn, steps, last = _role(begun, players, players[0]), 0, BaseStepResponse()
        transcripts[turn].observe(begun.observation)
        # Count a truncated answer as a turn, because only the game can decide whether the answer is usable.
        while not (last.terminated or last.truncated) and steps < (self.config.max_steps or 2**31):
            last = await game.step(await transcripts[turn].ask(self.server_client, turn, path))
            transcripts[turn].answer_calls(last)
            for name, reward in _rewards(last, players, turn).items():
                rewards[name] += reward
            turn, steps = _role(last, players, turn), steps + 1
            transcripts[turn].observe(last.observation)
        ending = {"steps": steps, "terminated": last.terminated, "truncated": last.truncated}
        parts = {name: {**transcripts[name].played, "reward": rewards[name]} for name in players}
        # A player who made no move has no response.
        trainable = [each.name for each in self.config.players if each.trainable and transcripts[each.name].output]
        roles = {"roles": {name: parts[name] for name in trainable}, **_used_by(list(transcripts.values())[1:])}
        return {**parts[players[0]], **ending, **(roles if self.config.players else {})}


def _used_by(others: Iterable[Transcript]) -> JsonObject:
    """Return the tokens of further players in the fields for those of a simulated user, so that they are counted."""
    moved = [each for each in others if each.output]
    usage = reduce(accumulate_response_usage, (each.usage for each in moved), None)
    model = moved[0].response.get("model") if moved else None
    return {"user_usage": usage.model_dump(mode="json") if usage else None, "user_model": model}


def _role(answer: BaseResetResponse | BaseStepResponse, players: list[str], otherwise: str) -> str:
    """Return the player who makes the next move. In a game of one player, `role` may have another meaning."""
    if len(players) == 1:
        return players[0]
    role = answer.info.get("role", otherwise)
    if role not in players:
        raise EnvironmentFailed(f"the game asks '{role}' for a move, but the players are {', '.join(players)}")
    return str(role)


def _rewards(step: BaseStepResponse, players: list[str], turn: str) -> dict[str, float]:
    """Return the rewards of a step by player. A game of one player has only `reward`."""
    if len(players) == 1:
        return {turn: step.reward}
    rewards = step.info.get("rewards") or {}
    if not isinstance(rewards, dict) or not all(
        isinstance(each, (int, float)) and math.isfinite(each) for each in rewards.values()
    ):
        raise EnvironmentFailed("the rewards in a step's info are not finite numbers by player")
    if step.terminated and rewards.keys() != set(players):
        raise EnvironmentFailed(f"the game ended without a reward for each of the players {', '.join(players)}")
    return {name: rewards[name] for name in players if name in rewards}


if __name__ == "__main__":
    GymnasiumAgent.run_webserver()
