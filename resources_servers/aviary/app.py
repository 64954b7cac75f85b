"""Serve any Aviary environment: reset when the session is seeded, stepped with the model's turns."""

import asyncio
import math
from functools import cached_property
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    EnvironmentFailed,
    NeMoGymResponseOutputItem,
    ReverifyMode,
    SimpleResourcesServer,
    turns_of,
)
from resources_servers.aviary.messages import Call, Turn
from resources_servers.aviary.play import Play
from resources_servers.aviary.tasks import Tasks, is_file


class AviaryConfig(BaseResourcesServerConfig):
    """Where environments come from: a class and its arguments, or a dataset that makes them."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    environment: str | None = None
    """The class path of an environment, `module:Class`."""
    environment_kwargs: dict[str, Any] = Field(default_factory=dict)
    dataset: str | None = None
    """The class path of a TaskDataset; or, for `environment`, a JSONL file with a task's arguments in each line."""
    dataset_kwargs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_one_source(self) -> "AviaryConfig":
        makes_its_own = self.dataset is not None and not is_file(self.dataset)
        if makes_its_own and self.environment is not None:
            raise ValueError(
                f"dataset: '{self.dataset}' makes its own environments; leave out environment, or name a .jsonl file"
            )
        if not makes_its_own and self.environment is None:
            raise ValueError("environment: name the class path of an environment, or of a dataset under `dataset`")
        return self


class TaskFields(BaseModel):
    """The fields of a row that decide on its environment."""

    task_idx: int = Field(ge=0)
    task: dict[str, Any] | None = None
    """Keyword arguments of the environment, where the row brings its own."""


class SeedRequest(BaseSeedSessionRequest, TaskFields):
    """The row."""


class SeedResponse(BaseSeedSessionResponse):
    """The environment that was opened, and how it begins."""

    env_id: str
    obs: list[dict[str, Any]]
    """Items of a response's input."""
    tools: list[dict[str, Any]]
    """Function tools, as a request lists them."""


class StepRequest(BaseModel):
    """One turn of the model; which environment it acts in, `env_id` tells, and without it the session's cookie."""

    env_id: str | None = None
    action: list[NeMoGymResponseOutputItem]
    """The turn's output items: function calls and messages count."""


class StepResponse(BaseModel):
    """What the turn has led to."""

    obs: list[dict[str, Any]]
    reward: float
    done: bool


class CloseRequest(BaseModel):
    """The environment to be closed; without its id, the session's."""

    env_id: str | None = None


class CloseResponse(BaseModel):
    """Whether it was open."""

    closed: bool


class VerifyRequest(BaseVerifyRequest, TaskFields):
    """The row, and what the agent did."""

    model_config = ConfigDict(extra="allow")

    env_id: str | None = None
    """For agents that keep no cookies."""


class AviaryServer(SimpleResourcesServer):
    """Opens an environment for each rollout, lets the model act in it, and adds up what the steps earn."""

    config: AviaryConfig

    @cached_property
    def tasks(self) -> Tasks:
        """Where rows find their environments."""
        settings = self.config
        return Tasks(settings.environment, settings.environment_kwargs, settings.dataset, settings.dataset_kwargs)

    def setup_webserver(self) -> FastAPI:
        """The routes of a resources server, then Aviary's; every other POST is a call of the tool of that name."""
        app = super().setup_webserver()
        app.post("/step")(self.step)
        app.post("/close")(self.close)
        app.post("/{tool_name}")(self.call_tool)
        return app

    async def seed_session(self, request: Request, body: SeedRequest, play: Play) -> SeedResponse:
        """Open the row's environment and reset it."""
        await self._begin(play, body)
        return SeedResponse(env_id=request.session[SESSION_ID_KEY], obs=play.beginning, tools=play.definitions)

    async def step(self, request: Request, body: StepRequest) -> StepResponse:
        """Let one turn of the model have its effect."""
        env_id = body.env_id or request.session[SESSION_ID_KEY]
        play = await self._open(env_id)
        with self.sessions.in_use(env_id):
            led_to = await play.step(Turn.of(body.action))
        return StepResponse(obs=led_to.obs, reward=led_to.reward, done=led_to.done)

    async def call_tool(self, request: Request, tool_name: str) -> PlainTextResponse:
        """A step with this one call, for agents that know of tools alone."""
        env_id = request.session[SESSION_ID_KEY]
        play = await self._open(env_id)
        if play.is_over:
            return PlainTextResponse("The task is over; no further call has an effect.", status_code=422)
        arguments = (await request.body()).decode("utf-8", "replace")
        with self.sessions.in_use(env_id):
            led_to = await play.step(Turn("", [Call(f"call_{len(play.transitions)}", tool_name, arguments)]))
        return PlainTextResponse(led_to.told)

    async def close(self, request: Request, body: CloseRequest | None = None) -> CloseResponse:
        """Close an environment that is no longer needed."""
        env_id = (body and body.env_id) or request.session[SESSION_ID_KEY]
        return CloseResponse(closed=await self.sessions.drop(env_id))

    async def verify(self, request: Request, body: VerifyRequest) -> BaseVerifyResponse:
        """The sum of the steps' rewards; a response of which no turn was stepped is played now, turn by turn."""
        env_id = body.env_id or request.session[SESSION_ID_KEY]
        play = self.sessions.get(env_id, Play)
        try:
            with self.sessions.in_use(env_id):
                if not play.has_begun:
                    await self._begin(play, body)
                if not play.transitions:
                    await _play_again(play, body)
            return BaseVerifyResponse.grade(
                body,
                reward=math.fsum(each.reward for each in play.transitions),
                transitions=[each.model_dump() for each in play.transitions],
            )
        finally:
            await self.sessions.drop(env_id)

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Every mean but that of the tasks' numbers."""
        return {key: value for key, value in super().get_key_metrics(agent_metrics).items() if key != "mean/task_idx"}

    async def _begin(self, play: Play, row: TaskFields) -> None:
        # In a thread: what a dataset reads or computes must not hold up the other rollouts.
        made = await asyncio.to_thread(self.tasks.environment_of, row.task_idx, row.task)
        await play.begin(made, task_idx=row.task_idx)

    async def _open(self, env_id: str) -> Play:
        play = self.sessions.get(env_id, Play)
        if not play.has_begun:
            await self.sessions.drop(env_id)
            raise EnvironmentFailed(
                f"{self.config.name}: there is no open environment '{env_id}'; POST /seed_session opens one",
                server=self.config.name,
            )
        return play


async def _play_again(play: Play, body: VerifyRequest) -> None:
    for items in turns_of(body.response.output):
        if (await play.step(Turn.of(items))).done:
            return


if __name__ == "__main__":
    AviaryServer.run_webserver()
