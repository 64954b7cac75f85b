"""Serve any Aviary environment. Seeding a session resets its environment, and each model turn is one step."""

import asyncio
import math
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponseOutputItem,
    OutOfTurn,
    ReverifyMode,
    SimpleResourcesServer,
    turns_of,
)
from resources_servers.aviary.messages import Call, Turn, text_of
from resources_servers.aviary.play import Play
from resources_servers.aviary.remote import RemoteEnvironment, TaskServer
from resources_servers.aviary.tasks import Tasks, is_file


class AviaryConfig(BaseResourcesServerConfig):
    """The source of environments: a class with its arguments, or a dataset or a task server that creates them."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    environment: str | None = None
    """The class path of an environment, `module:Class`."""
    environment_kwargs: dict[str, Any] = Field(default_factory=dict)
    dataset: str | None = None
    """The class path of a TaskDataset. If `environment` is set: a JSONL file with its arguments, one task per line."""
    dataset_kwargs: dict[str, Any] = Field(default_factory=dict)
    address: str | None = None
    """The URL of an Aviary task server, which creates the environments."""
    api_key: str | None = Field(default=None, repr=False)
    """Sent to the task server as `X-API-Key`."""
    reply_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds to wait for each reply of the task server."""
    max_reply_mb: float = Field(default=16.0, gt=0)

    @field_validator("address")
    @classmethod
    def _is_url(cls, given: str | None) -> str | None:
        if given is not None and (urlsplit(given).scheme not in ("http", "https") or not urlsplit(given).hostname):
            raise ValueError(f"'{given}' is not a URL. Write it like http://127.0.0.1:8041")
        return given

    @model_validator(mode="after")
    def _names_one_source(self) -> "AviaryConfig":
        if self.address is not None:
            if self.environment is not None or self.dataset is not None:
                raise ValueError(
                    "address: the task server creates the environments. Remove `environment` and `dataset`"
                )
            return self
        is_class = self.dataset is not None and not is_file(self.dataset)
        if is_class and self.environment is not None:
            raise ValueError(
                f"dataset: '{self.dataset}' creates its own environments. Remove `environment`, or set `dataset` "
                "to a .jsonl file"
            )
        if not is_class and self.environment is None:
            raise ValueError(
                "environment: set an environment's class path here, or set `dataset` to a dataset's class path"
            )
        return self


class TaskFields(BaseModel):
    """The fields of a row that select its environment."""

    task_idx: int = Field(ge=0)
    task: dict[str, Any] | None = None
    """The environment's keyword arguments, if the row has its own."""


class SeedRequest(BaseSeedSessionRequest, TaskFields):
    """The body of `/seed_session`: the row whose environment is opened."""


class SeedResponse(BaseSeedSessionResponse):
    """The response to `/seed_session`: the opened environment's id, first observation and tools."""

    env_id: str
    obs: list[dict[str, Any]]
    """The first observation, as input items of a model request."""
    tools: list[dict[str, Any]]
    """Function tools in the format of a model request."""


class StepRequest(BaseModel):
    """The body of `/step`: one model turn. `env_id`, or else the session cookie, selects the environment."""

    env_id: str | None = None
    action: list[NeMoGymResponseOutputItem]
    """The turn's output items. Only function calls and messages are used."""


class StepResponse(BaseModel):
    """The response to `/step`: the result of one turn."""

    obs: list[dict[str, Any]]
    reward: float
    done: bool


class CloseRequest(BaseModel):
    """The body of `/close`: the environment to close, by default the session's."""

    env_id: str | None = None


class CloseResponse(BaseModel):
    """The response to `/close`: whether the environment was open."""

    closed: bool


class VerifyRequest(BaseVerifyRequest, TaskFields):
    """The body of `/verify`: the row and the agent's response."""

    model_config = ConfigDict(extra="allow")

    env_id: str | None = None
    """The environment's id. Only agents that do not keep cookies must send it."""


class AviaryServer(SimpleResourcesServer):
    """A server that opens an environment for each rollout, steps it with the model's turns, and sums the rewards."""

    config: AviaryConfig
    EPISODE_ROUTES = ("/seed_session", "/step")
    KEY_METRICS = ("mean/reward", "mean/input_tokens", "mean/output_tokens", "mean/total_tokens")

    @cached_property
    def tasks(self) -> Tasks:
        """The factory of the rows' environments."""
        settings = self.config
        return Tasks(settings.environment, settings.environment_kwargs, settings.dataset, settings.dataset_kwargs)

    @property
    def task_server(self) -> TaskServer | None:
        """The task server that creates the environments, if the config names one."""
        settings = self.config
        if settings.address is None:
            return None
        return TaskServer(settings.address, settings.api_key, settings.reply_timeout_s, settings.max_reply_mb)

    def setup_webserver(self) -> FastAPI:
        """Return the app with Aviary's routes. A POST to any other path calls the tool of that name."""
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
        """Step the environment with one model turn."""
        env_id = body.env_id or request.session[SESSION_ID_KEY]
        play = await self._open(env_id)
        with self.sessions.in_use(env_id):
            transition = await play.step(Turn.of(body.action))
        return StepResponse(obs=transition.obs, reward=transition.reward, done=transition.done)

    async def call_tool(self, request: Request, tool_name: str) -> PlainTextResponse:
        """Step the environment with a single call, for agents that call each tool by its own URL."""
        env_id = request.session[SESSION_ID_KEY]
        play = await self._open(env_id)
        if play.is_over:
            return PlainTextResponse("The task is over; no further call has an effect.", status_code=422)
        arguments = (await request.body()).decode("utf-8", "replace")
        with self.sessions.in_use(env_id):
            transition = await play.step(Turn("", [Call(f"call_{len(play.transitions)}", tool_name, arguments)]))
        return PlainTextResponse(text_of(transition.obs))

    async def close(self, request: Request, body: CloseRequest | None = None) -> CloseResponse:
        """Close an environment that is no longer needed."""
        env_id = (body and body.env_id) or request.session[SESSION_ID_KEY]
        return CloseResponse(closed=await self.sessions.drop(env_id))

    async def verify(self, request: Request, body: VerifyRequest) -> BaseVerifyResponse:
        """Return the sum of the steps' rewards. Replay the response first if none of its turns were stepped."""
        env_id = body.env_id or request.session[SESSION_ID_KEY]
        play = self.sessions.get(env_id, Play)
        try:
            with self.sessions.in_use(env_id):
                if not play.has_begun:
                    await self._begin(play, body)
                if not play.transitions:
                    await _replay(play, body)
            play.check_rewards()
            return BaseVerifyResponse.grade(
                body,
                reward=math.fsum(each.reward for each in play.transitions),
                transitions=[each.model_dump() for each in play.transitions],
            )
        finally:
            await self.sessions.drop(env_id)

    async def _begin(self, play: Play, row: TaskFields) -> None:
        made: Any
        if (server := self.task_server) is not None:
            made = RemoteEnvironment(
                server, {"task_idx": row.task_idx} if row.task is None else {"task_kwargs": row.task}
            )
        else:
            # Use a thread, because a slow dataset would block the event loop.
            made = await asyncio.to_thread(self.tasks.environment_of, row.task_idx, row.task)
        await play.begin(made, task_idx=row.task_idx)

    async def _open(self, env_id: str) -> Play:
        play = self.sessions.get(env_id, Play)
        if not play.has_begun:
            await self.sessions.drop(env_id)
            raise OutOfTurn(
                f"{self.config.name}: environment '{env_id}' is not open. POST /seed_session opens one",
                server=self.config.name,
            )
        return play


async def _replay(play: Play, body: VerifyRequest) -> None:
    for items in turns_of(body.response.output):
        if (await play.step(Turn.of(items))).done:
            return


if __name__ == "__main__":
    AviaryServer.run_webserver()
