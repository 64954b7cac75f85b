"""The published API's base class for games with Gymnasium's `reset` and `step`. The model's turn is the action."""

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
    """The request to start a game. The row's own fields are kept as extra fields."""

    model_config = ConfigDict(extra="allow")


class RowToStep(BaseStepRequest):
    """The request to perform a step: the model's turn, with the row's own fields as extra fields."""

    model_config = ConfigDict(extra="allow")


class OpenGame(SessionState):
    """The session state of a running game. `release` is called when the game ends or the session expires."""

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
        """Discard a game. Called once, when the game ends or its session expires."""

    def game_methods(self) -> tuple[Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]]:
        return self._reset_of_row, self._step_of_row

    async def _reset_of_row(self, request: Request, body: RowToReset, game: OpenGame) -> Any:
        session_id = request.session[SESSION_ID_KEY]
        game.release = lambda: self.close(session_id)
        return await self.reset(dict(body.model_extra or {}), session_id)

    async def _step_of_row(self, request: Request, body: RowToStep) -> Any:
        return await self.step(body.response, dict(body.model_extra or {}), request.session[SESSION_ID_KEY])
