"""One running environment: its reset, its steps and their rewards."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, Field

from nemo_gym import EnvironmentFailed, OutOfTurn, RolloutError, SessionState
from resources_servers.aviary.messages import Item, Turn, action_of, answered, definition_of, observed

logger = logging.getLogger(__name__)


class Transition(BaseModel):
    """One step: the model's action, the observation and the reward."""

    action: list[Item]
    obs: list[Item]
    reward: float
    done: bool


class Play(SessionState):
    """The environment of one rollout, and its transitions so far."""

    environment: Any = None
    task_idx: int = 0
    beginning: list[Item] = Field(default_factory=list)
    """The first observation."""
    definitions: list[Item] = Field(default_factory=list)
    """The tools in the format of a model request."""
    has_begun: bool = False
    transitions: list[Transition] = Field(default_factory=list)
    failed: bool = False
    """Whether a step failed. It may have had an effect, so the rewards are incomplete."""
    turn: asyncio.Lock = Field(default_factory=asyncio.Lock)

    @property
    def is_over(self) -> bool:
        """Whether the last step reported `done`."""
        return bool(self.transitions) and self.transitions[-1].done

    async def begin(self, environment: Any, *, task_idx: int) -> None:
        """Store the rollout's environment and reset it. Raises `EnvironmentFailed` if the reset fails."""
        self.environment, self.task_idx = environment, task_idx
        with self._named("reset"):
            messages, tools = await environment.reset()
            self.beginning = observed(messages)
            self.definitions = [definition_of(tool) for tool in tools]
        self.has_begun = True

    async def step(self, turn: Turn) -> Transition:
        """Wait for any earlier step to end, then step the environment with a model turn.

        Raises `EnvironmentFailed` if the environment fails, and `OutOfTurn` if the task is over.
        """
        async with self.turn:
            if self.is_over:
                raise OutOfTurn(f"{self._name}: the task is over. POST /seed_session starts another one")
            self.check_rewards()
            self.failed = True
            with self._named("step"):
                action = action_of(turn, self.environment)
                messages, reward, done, truncated = await self.environment.step(action.message)
                taken = Transition(
                    action=turn.items,
                    obs=answered(messages, action),
                    reward=float(reward),
                    done=bool(done or truncated),
                )
            if not math.isfinite(taken.reward):
                raise EnvironmentFailed(f"{self._name}: step returned the reward {taken.reward}, which is not finite")
            self.failed = False
            self.transitions.append(taken)
            return taken

    def check_rewards(self) -> None:
        """Raise `EnvironmentFailed` if a step has failed or was interrupted."""
        if self.failed:
            raise EnvironmentFailed(f"{self._name}: an earlier step failed, so the reward is unknown")

    async def close(self) -> None:
        """Close the environment if it has a `close` method."""
        if self.environment is not None and callable(getattr(self.environment, "close", None)):
            await self.environment.close()

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        """Convert any error in the block to an `EnvironmentFailed` that names the environment and `method`."""
        try:
            yield
        except RolloutError:
            raise
        except Exception as error:
            logger.exception("%s: %s failed", self._name, method)
            raise EnvironmentFailed(f"{self._name}: {method} raised {type(error).__name__}: {error}") from error

    @property
    def _name(self) -> str:
        kind = type(self.environment)
        return f"{kind.__module__}:{kind.__qualname__} (task_idx {self.task_idx})"
