"""The published base class of games: Gymnasium's own reset and step, with the model's turn as the action."""

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
    """A row with fields of any name."""

    model_config = ConfigDict(extra="allow")


class RowToStep(BaseStepRequest):
    """A row with fields of any name, and the model's turn."""

    model_config = ConfigDict(extra="allow")


class OpenGame(SessionState):
    """A game that its server is told the end of."""

    release: Callable[[], Any] | None = None

    async def close(self) -> None:
        released = self.release() if self.release else None
        if inspect.isawaitable(released):
            await released


class GymnasiumServer(SteppedResourcesServer):
    """Subclass it and write `reset` and `step` as Gymnasium has them; what belongs to a rollout is kept by session id.

    `metadata` is the row without its `responses_create_params`. For new environments `SteppedResourcesServer` is the
    shorter way: it hands each call the rollout's state.
    """

    @abstractmethod
    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        """Begin a game: `(observation, info)`."""

    @abstractmethod
    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        """Let the model's turn have its effect: `(observation, reward, terminated, truncated, info)`."""

    async def close(self, session_id: str) -> None:
        """Forget a game; called once, at its end or when it has lain idle."""

    def game_methods(self) -> tuple[Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]]:
        return self._reset_of_row, self._step_of_row

    async def _reset_of_row(self, request: Request, body: RowToReset, game: OpenGame) -> Any:
        session_id = request.session[SESSION_ID_KEY]
        game.release = lambda: self.close(session_id)
        return await self.reset(dict(body.model_extra or {}), session_id)

    async def _step_of_row(self, request: Request, body: RowToStep) -> Any:
        return await self.step(body.response, dict(body.model_extra or {}), request.session[SESSION_ID_KEY])
