"""Play a registered Gymnasium environment, one action per turn."""

import asyncio
from typing import Any, ClassVar

from pydantic import Field, field_validator

from nemo_gym import (
    BaseResetRequest,
    BaseResourcesServerConfig,
    BaseStepRequest,
    BaseStepResponse,
    ReverifyMode,
    SessionState,
    SteppedResourcesServer,
)
from resources_servers.gymnasium.play import Play


class GymnasiumConfig(BaseResourcesServerConfig):
    """The server's settings, including the environment for rows that do not name one."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    env_id: str = "FrozenLake-v1"
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of `gymnasium.make`, such as `{is_slippery: false}` or `{max_episode_steps: 50}`."""
    action_names: list[str] | None = None
    """The names of the actions in numeric order. By default, built-in names are used if the environment has them."""
    unreadable_answers: int = Field(default=3, ge=1)
    """The limit on consecutive answers without an action. At the limit, the game is truncated."""
    unreadable_reward: float = 0.0
    """The reward of each answer without an action."""


class ResetRequest(BaseResetRequest):
    """The row: a seed, and an environment if it differs from the config's."""

    seed: int = Field(default=0, ge=0)
    env_id: str | None = None
    env_kwargs: dict[str, Any] | None = None
    action_names: list[str] | None = None
    unreadable_reward: float | None = None

    @field_validator("env_id")
    @classmethod
    def _is_registered(cls, value: str | None) -> str | None:
        if value is not None and ":" in value:
            raise ValueError(
                "a row must name a registered environment. To use 'module:name', set env_id in the config"
            )
        return value


class Game(SessionState):
    """The state of a rollout's game."""

    play: Play | None = None
    unreadable: int = 0
    unreadable_reward: float = 0.0

    async def close(self) -> None:
        if self.play is not None:
            await asyncio.to_thread(self.play.close)


class GymnasiumEnvironmentServer(SteppedResourcesServer):
    """A server that reads actions from each turn and returns the environment's own rewards."""

    config: GymnasiumConfig

    async def reset(self, body: ResetRequest, game: Game) -> str:
        reward = body.unreadable_reward
        game.unreadable_reward = self.config.unreadable_reward if reward is None else reward
        # Use a thread, because a slow environment would block the event loop and other games.
        game.play = await asyncio.to_thread(self._made, body)
        return await asyncio.to_thread(game.play.reset, body.seed)

    async def step(self, body: BaseStepRequest, game: Game) -> BaseStepResponse:
        assert game.play is not None
        action = game.play.actions.read(body.response.last_text)
        if action is None:
            return self._unreadable(game)
        game.unreadable = 0
        moved = await asyncio.to_thread(game.play.step, action)
        return BaseStepResponse(**moved._asdict())

    def _made(self, body: ResetRequest) -> Play:
        if body.env_id is None or body.env_id == self.config.env_id:
            kwargs = {**self.config.env_kwargs, **(body.env_kwargs or {})}
            return Play(self.config.env_id, kwargs, body.action_names or self.config.action_names)
        return Play(body.env_id, body.env_kwargs or {}, body.action_names)

    def _unreadable(self, game: Game) -> BaseStepResponse:
        assert game.play is not None
        game.unreadable += 1
        is_over = game.unreadable >= self.config.unreadable_answers
        advice = "The game is over." if is_over else game.play.actions.as_text
        return BaseStepResponse(
            observation=f"Your answer names no action. {advice}", reward=game.unreadable_reward, truncated=is_over
        )


if __name__ == "__main__":
    GymnasiumEnvironmentServer.run_webserver()
