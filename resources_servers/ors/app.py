"""Play a task of any ORS server. Seeding opens a session there, and each model turn calls its tools."""

import math
from functools import cached_property
from typing import Any, ClassVar, Literal

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponseOutputItem,
    OutOfTurn,
    ReverifyMode,
    SimpleResourcesServer,
    turns_of,
)
from resources_servers.ors.client import Json, Ors, OrsSettings
from resources_servers.ors.play import OrsTask, Play, content_of

PARTS = {"x-nemo-gym-content-parts": "true"}
"""The header of a tool's reply that is a list of content parts."""


class OrsConfig(OrsSettings, BaseResourcesServerConfig):
    """The server to play, and which of its rewards count."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    reward: Literal["last", "sum"] = "last"
    """The rollout's reward: the last one that a tool reported (sparse), or their sum (dense)."""
    ping_s: float = Field(default=10.0, gt=0)
    """The time between two keep-alive calls of a session, in seconds."""


class SeedRequest(BaseSeedSessionRequest):
    """The row whose task is begun."""

    ors: OrsTask
    responses_create_params: Json


class StepRequest(BaseModel):
    """One model turn. Only function calls and messages are used."""

    action: list[NeMoGymResponseOutputItem]


class StepResponse(BaseModel):
    """The outputs of the turn's calls, and the sum of their rewards."""

    obs: list[Json]
    reward: float
    done: bool


class VerifyRequest(BaseVerifyRequest):
    """The row and the agent's response."""

    model_config = ConfigDict(extra="allow")

    ors: OrsTask


class OrsServer(SimpleResourcesServer):
    """A server that opens an ORS session for each rollout, and returns the rewards of its tools."""

    config: OrsConfig
    EPISODE_ROUTES = ("/seed_session", "/step")

    @cached_property
    def ors(self) -> Ors:
        """The client of the environment."""
        return Ors(self.config)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the routes of step-by-step agents. A POST to another path calls that tool."""
        app = super().setup_webserver()
        app.post("/step")(self.step)
        app.post("/close")(self._forget_rollout)
        app.post("/{tool_name}")(self.call_tool)
        return app

    async def close_owned(self) -> None:
        await super().close_owned()
        await self.ors.close()

    async def seed_session(self, request: Request, body: SeedRequest, play: Play) -> Json:
        """Begin the row's task in a new session of the ORS server. `obs` is the prompt, unless the row has one."""
        await play.begin(self.ors, body.ors, self.config.ping_s)
        has_prompt = bool(body.responses_create_params.get("input"))
        prompt = [] if has_prompt else [{"role": "user", "content": content_of(play.prompt)}]
        return {"env_id": request.session[SESSION_ID_KEY], "obs": prompt, "tools": play.definitions}

    async def step(self, request: Request, body: StepRequest) -> StepResponse:
        """Run the tool calls of one model turn. A turn without calls is the model's answer, which ends the task."""
        play = self._playing(request)
        earned = len(play.rewards)
        with self.sessions.in_use(request.session[SESSION_ID_KEY]):
            obs = await _taken(play, body.action)
        return StepResponse(obs=obs, reward=math.fsum(play.rewards[earned:]), done=play.is_over or not obs)

    async def call_tool(self, request: Request, tool_name: str) -> Response:
        """Call one tool, for agents that call each tool by its own URL."""
        play = self._playing(request)
        with self.sessions.in_use(request.session[SESSION_ID_KEY]):
            output = await play.call(tool_name, (await request.body()).decode("utf-8", "replace"))
        if isinstance(output, str):
            return Response(output.encode(errors="replace"), media_type="text/plain")
        return Response(orjson.dumps(output), media_type="application/json", headers=PARTS)

    async def verify(self, body: VerifyRequest, play: Play) -> BaseVerifyResponse:
        """Return the reward of the session's calls. If there were none, make the calls of the response first."""
        if play.ors is None:
            await play.begin(self.ors, body.ors, self.config.ping_s)
        if play.failure is not None:
            raise play.failure
        turns, is_replay = list(turns_of(body.response.output)), play.calls == 0
        for turn in turns if is_replay else turns[-1:]:
            if is_replay or not _calls_of(turn):
                await _taken(play, turn)
        rewards = play.rewards
        reward = math.fsum(rewards) if self.config.reward == "sum" else [0.0, *rewards][-1]
        return BaseVerifyResponse.grade(body, reward=reward, rewards=rewards, finished=play.is_over)

    def _playing(self, request: Request) -> Play:
        play = self.sessions.get(request.session[SESSION_ID_KEY], Play)
        if play.ors is None:
            raise OutOfTurn(f"{self.config.name}: POST /seed_session must begin a task first")
        return play


def _calls_of(turn: list[Any]) -> list[Any]:
    return [each for each in turn if each.type == "function_call"]


async def _taken(play: Play, turn: list[Any]) -> list[Json]:
    """Run a turn's calls in order, and return their outputs. Pass a turn without calls to the terminal tool."""
    calls = _calls_of(turn)
    if not calls:
        await play.answer("".join(each.text for each in turn if each.type == "message" and each.role == "assistant"))
    return [
        {"type": "function_call_output", "call_id": each.call_id, "output": await play.call(each.name, each.arguments)}
        for each in calls
    ]


if __name__ == "__main__":
    OrsServer.run_webserver()
