"""One environment under way: its reset, its steps, and what they have earned."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, Field

from nemo_gym import EnvironmentFailed, SessionState
from resources_servers.aviary.messages import Item, Turn, action_of, answered, definition_of, observed, text_of

logger = logging.getLogger(__name__)


class Transition(BaseModel):
    """One step: what the model did, what it was told then, and what that earned."""

    action: list[Item]
    obs: list[Item]
    reward: float
    done: bool

    @property
    def told(self) -> str:
        """What was observed, as one text."""
        return text_of(self.obs)


class Play(SessionState):
    """This rollout's environment."""

    environment: Any = None
    task_idx: int = 0
    beginning: list[Item] = Field(default_factory=list)
    """What the model is told first."""
    definitions: list[Item] = Field(default_factory=list)
    """The tools, as a request lists them."""
    has_begun: bool = False
    transitions: list[Transition] = Field(default_factory=list)
    turn: asyncio.Lock = Field(default_factory=asyncio.Lock)

    @property
    def is_over(self) -> bool:
        """Whether the environment has said that it is done."""
        return bool(self.transitions) and self.transitions[-1].done

    async def begin(self, environment: Any, *, task_idx: int) -> None:
        """Reset an environment. Raises `EnvironmentFailed`, as does `step`."""
        self.environment, self.task_idx = environment, task_idx
        with self._named("reset"):
            messages, tools = await environment.reset()
            self.beginning = observed(messages)
            self.definitions = [definition_of(tool) for tool in tools]
        self.has_begun = True

    async def step(self, turn: Turn) -> Transition:
        """Let a turn of the model have its effect; one at a time."""
        async with self.turn:
            if self.is_over:
                raise EnvironmentFailed(f"{self._name}: the task is over; POST /seed_session for another one")
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
                raise EnvironmentFailed(f"{self._name}: step gave the reward {taken.reward}, which is not finite")
            self.transitions.append(taken)
            return taken

    async def close(self) -> None:
        """Let the environment free what it holds."""
        if self.environment is not None and callable(getattr(self.environment, "close", None)):
            await self.environment.close()

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        """Whatever the author's method raises, or returns that is not to be read, is told with its name."""
        try:
            yield
        except Exception as error:
            logger.exception("%s: %s failed", self._name, method)
            raise EnvironmentFailed(f"{self._name}: {method} raised {type(error).__name__}: {error}") from error

    @property
    def _name(self) -> str:
        kind = type(self.environment)
        return f"{kind.__module__}:{kind.__qualname__} (task_idx {self.task_idx})"
