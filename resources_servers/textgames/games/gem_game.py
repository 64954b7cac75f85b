"""Environments of GEM."""

from __future__ import annotations

from typing import Any

import gem
from serve import NotPlayable

RUNS_CODE = ("code:", "eval:CodeContest")


class Game:
    def __init__(self, asked: dict[str, Any]) -> None:
        name, kwargs = asked["game"], asked["env_kwargs"]
        if name not in gem.envs.registration.ENV_REGISTRY:
            raise NotPlayable(f"GEM has no environment '{name}'")
        if name.startswith(RUNS_CODE):
            raise NotPlayable(f"'{name}' runs programs of the model outside a sandbox, which is not supported")
        try:
            self._env = gem.make(name, **kwargs)
        except TypeError as error:
            raise NotPlayable(f"'{name}' cannot be created with {kwargs}: {error}") from error
        self.beginning = _text(*self._env.reset(seed=asked["seed"]))

    def step(self, action: str) -> tuple[str, float, bool, bool]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return _text(observation, {} if terminated or truncated else info), reward, terminated, truncated


def _text(observation: str, info: dict[str, Any]) -> str:
    """Join an observation and its suffix, which has the board and asks for the next move."""
    return "\n".join(filter(None, [observation.strip(), info.get("suffix", "").strip()]))
