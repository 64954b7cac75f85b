"""One Gymnasium environment, played in text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nemo_gym import EnvironmentFailed, InvalidTask
from resources_servers.gymnasium.actions import Actions, NoTextActions
from resources_servers.gymnasium.games import known, picture_of

DRAWN_IN_LETTERS = "ansi"


class Moved(NamedTuple):
    """What a step has led to."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


def make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """The environment, drawing in letters where it can. Raises `InvalidTask` where there is no such one."""
    if "render_mode" in env_kwargs:
        raise InvalidTask(f"env_kwargs: '{env_id}' is shown in text; leave out render_mode")
    try:
        # Only here: it comes with the extra `gymnasium`, and takes half a second.
        import gymnasium
    except ImportError as error:
        raise EnvironmentFailed("gymnasium is not installed: pip install 'nemo-gym[gymnasium]'") from error
    try:
        env = gymnasium.make(env_id, disable_env_checker=True, **env_kwargs)
        if DRAWN_IN_LETTERS in env.metadata.get("render_modes", ()):
            env.close()
            env = gymnasium.make(env_id, disable_env_checker=True, render_mode=DRAWN_IN_LETTERS, **env_kwargs)
    except (
        gymnasium.error.Error,
        ImportError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        AssertionError,
    ) as error:
        told = f"{type(error).__name__}: {error}"
        raise InvalidTask(f"env_id, env_kwargs: '{env_id}' cannot be made ({told})") from error
    return env


class Play:
    """One game of an environment, from its reset to its end."""

    def __init__(self, env_id: str, env_kwargs: Mapping[str, Any], action_names: Sequence[str] | None = None) -> None:
        self.env = make_env(env_id, env_kwargs)
        self._known = known(env_id)
        names = action_names or (self._known.actions if self._known else ())
        try:
            self.actions = Actions(self.env.action_space, names)
        except NoTextActions as error:
            self.env.close()
            raise InvalidTask(f"env_id: '{env_id}' cannot be played in text: {error}") from error

    def reset(self, seed: int) -> str:
        """Begin the game that a seed makes; what the model is told first."""
        observation, _ = self.env.reset(seed=seed)
        return f"{self._told(observation)}\n{self.actions.told}"

    def step(self, action: Any) -> Moved:
        """Let an action have its effect."""
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return Moved(self._told(observation), float(reward), bool(terminated), bool(truncated))

    def close(self) -> None:
        """Free what the environment holds."""
        self.env.close()

    def _told(self, observation: Any) -> str:
        if self._known is not None:
            return self._known.view(self.env, observation)
        values = f"Observation: {json.dumps(_plain(observation))}"
        if self.env.unwrapped.render_mode != DRAWN_IN_LETTERS:
            return values
        return f"{picture_of(self.env)}\n{values}"


def _plain(value: Any) -> Any:
    """An observation of any space as JSON; floats with four digits, for the model's sake."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return round(value, 4) if isinstance(value, float) else value if isinstance(value, (str, int)) else str(value)
