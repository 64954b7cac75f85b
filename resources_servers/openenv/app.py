"""Play the episodes of any OpenEnv server, one WebSocket connection per rollout."""

import math
from functools import cached_property
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponseOutputItem,
    SimpleResourcesServer,
)
from nemo_gym.jsonl import dump_json
from resources_servers.openenv.demo import Demo
from resources_servers.openenv.episode import Episode
from resources_servers.openenv.link import Address, Server

MEGABYTE = 1024 * 1024
REWARDS = {"sum": math.fsum, "last": lambda rewards: rewards[-1], "max": max}


class OpenEnvConfig(BaseResourcesServerConfig):
    """The server's settings: the OpenEnv server's address, its limits, and the reward of an episode."""

    address: str | None = None
    """The OpenEnv server, such as `ws://127.0.0.1:8000/ws`. Null plays a small game that is included."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """HTTP headers for the OpenEnv server, such as `{Authorization: Bearer …}`."""
    reward: Literal["sum", "last", "max"] = "sum"
    """How the rewards of the steps make the reward of the rollout. A step without a reward does not count."""
    capacity_wait_s: float = Field(default=600.0, ge=0)
    """Seconds to wait for a free session if the server is at capacity."""
    connect_timeout_s: float = Field(default=30.0, gt=0)
    reply_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds to wait for the reply to a reset or a step."""
    max_message_mb: float = Field(default=8.0, gt=0)
    """The maximum size of an observation, in megabytes. A larger one fails the rollout."""

    @field_validator("address")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            Address.of(value)
        return value


class RowFields(BaseModel):
    """The fields of a row that this server uses."""

    reset: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the environment's reset, such as `{seed: 1}` or `{split: test, index: 4}`."""


class SeedRequest(BaseSeedSessionRequest, RowFields):
    """The body of `/seed_session`: the row whose episode begins."""


class StepRequest(BaseModel):
    """The body of `/step`: the output items of one model turn. Function calls are the steps."""

    env_id: str | None = None
    action: list[NeMoGymResponseOutputItem]


class VerifyRequest(BaseVerifyRequest, RowFields):
    """The body of `/verify`: the row and the agent's response."""

    model_config = ConfigDict(extra="allow")


class OpenEnvServer(SimpleResourcesServer):
    """A server that plays an OpenEnv server's episodes with the model's tool calls, and combines their rewards."""

    config: OpenEnvConfig
    EPISODE_ROUTES = ("/seed_session", "/step")
    KEY_METRICS = ("mean/reward", "mean/steps", "mean/done", "mean/input_tokens", "mean/output_tokens")

    @cached_property
    def demo(self) -> Demo:
        return Demo()

    def setup_webserver(self) -> FastAPI:
        """Return the app with the routes for episodes. A POST to any other path calls the tool of that name."""
        app = super().setup_webserver()
        app.post("/step")(self.step)
        app.post("/close")(self._forget_rollout)
        app.post("/{tool_name}")(self.call_tool)
        return app

    async def seed_session(self, request: Request, body: SeedRequest, episode: Episode) -> dict[str, Any]:
        """Open a session on the OpenEnv server, and reset it with the row's `reset`."""
        await self._begin(episode, body)
        observation = {"type": "message", "role": "user", "content": episode.beginning}
        return {
            "env_id": request.session[SESSION_ID_KEY],
            "obs": [observation] if episode.beginning else [],
            "tools": [tool.definition for tool in episode.tools.values()],
        }

    async def step(self, request: Request, body: StepRequest) -> dict[str, Any]:
        """Make the calls of one model turn. A turn without calls ends the rollout."""
        env_id = request.session[SESSION_ID_KEY]
        episode = self.sessions.get(env_id, Episode)
        calls = [item for item in body.action if item.type == "function_call"]
        before, obs = len(episode.rewards), []
        with self.sessions.in_use(env_id):
            for call in calls:
                output = await episode.call(call.name, call.arguments)
                obs.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
        reward = math.fsum(episode.rewards[before:])
        return {"obs": obs, "reward": reward, "done": episode.is_over or not calls}

    async def call_tool(self, request: Request, tool_name: str) -> Response:
        """Make a single call, for agents that call each tool by its own URL."""
        env_id = request.session[SESSION_ID_KEY]
        episode = self.sessions.get(env_id, Episode)
        arguments = (await request.body()).decode("utf-8", "replace")
        with self.sessions.in_use(env_id):
            output = await episode.call(tool_name, arguments)
        return PlainTextResponse(output if isinstance(output, str) else dump_json(output))

    async def verify(self, body: VerifyRequest, episode: Episode) -> BaseVerifyResponse:
        """Combine the rewards of the steps. If no call was made in this session, make the response's calls first."""
        if not episode.has_begun:
            await self._begin(episode, body)
        if not episode.steps:
            for call in body.response.tool_calls:
                await episode.call(call.name, call.arguments)
        episode.check_rewards()
        return BaseVerifyResponse.grade(
            body,
            reward=REWARDS[self.config.reward](episode.rewards or [0.0]),
            steps=episode.steps,
            done=episode.is_over,
        )

    async def close_owned(self) -> None:
        await super().close_owned()
        await self.demo.close()

    async def _begin(self, episode: Episode, row: RowFields) -> None:
        settings = self.config
        server = Server(
            address=Address.of(settings.address or await self.demo.address()),
            headers=settings.headers,
            connect_timeout_s=settings.connect_timeout_s,
            reply_timeout_s=settings.reply_timeout_s,
            most_bytes=int(settings.max_message_mb * MEGABYTE),
        )
        await episode.begin(server, row.reset, await server.info("/schema"), settings.capacity_wait_s)


if __name__ == "__main__":
    OpenEnvServer.run_webserver()
