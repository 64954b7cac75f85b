"""The published base class of games: Gymnasium's `reset` and `step`, with the model's turn as the action."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from pydantic import ConfigDict

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResetRequest,
    BaseStepRequest,
    NeMoGymResponse,
    SessionState,
    SteppedResourcesServer,
)


class RowToReset(BaseResetRequest):
    """A row with any extra fields."""

    model_config = ConfigDict(extra="allow")


class RowToStep(BaseStepRequest):
    """A row with any extra fields, and the model's turn."""

    model_config = ConfigDict(extra="allow")


class OpenGame(SessionState):
    """A running game that notifies its server when it ends."""

    release: Callable[[], Any] | None = None

    async def close(self) -> None:
        released = self.release() if self.release else None
        if inspect.isawaitable(released):
            await released


class GymnasiumServer(SteppedResourcesServer):
    """A base class for games. Implement Gymnasium's `reset` and `step`, and store each rollout's state by session id.

    `metadata` is the row without its `responses_create_params`. New environments should use `SteppedResourcesServer`,
    which passes the rollout's state to each call.
    """

    @abstractmethod
    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        """Start a game and return `(observation, info)`."""

    @abstractmethod
    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        """Perform the model's turn and return `(observation, reward, terminated, truncated, info)`."""

    async def close(self, session_id: str) -> None:
        """Discard a game. Called once, at its end or when its session expires."""

    def game_methods(self) -> tuple[Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]]:
        return self._reset_of_row, self._step_of_row

    async def _reset_of_row(self, request: Request, body: RowToReset, game: OpenGame) -> Any:
        session_id = request.session[SESSION_ID_KEY]
        game.release = lambda: self.close(session_id)
        return await self.reset(dict(body.model_extra or {}), session_id)

    async def _step_of_row(self, request: Request, body: RowToStep) -> Any:
        return await self.step(body.response, dict(body.model_extra or {}), request.session[SESSION_ID_KEY])
