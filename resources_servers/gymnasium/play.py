"""One game of a Gymnasium environment in text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nemo_gym import EnvironmentFailed, InvalidTask
from resources_servers.gymnasium.actions import Actions, NoTextActions
from resources_servers.gymnasium.games import known, picture_of

DRAWN_IN_LETTERS = "ansi"


class Moved(NamedTuple):
    """The result of one step in an environment."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


def make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """Create the environment, with text rendering if supported. Raises `InvalidTask` if that fails."""
    if "render_mode" in env_kwargs:
        raise InvalidTask(f"env_kwargs: '{env_id}' is always rendered as text. Remove render_mode")
    try:
        # Import it lazily, because it needs the extra `gymnasium` and the import takes half a second.
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
        cause = f"{type(error).__name__}: {error}"
        raise InvalidTask(f"env_id, env_kwargs: '{env_id}' cannot be created ({cause})") from error
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
        """Start a game with a seed and return the first observation as text."""
        observation, _ = self.env.reset(seed=seed)
        return f"{self._as_text(observation)}\n{self.actions.as_text}"

    def step(self, action: Any) -> Moved:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return Moved(self._as_text(observation), float(reward), bool(terminated), bool(truncated))

    def close(self) -> None:
        self.env.close()

    def _as_text(self, observation: Any) -> str:
        if self._known is not None:
            return self._known.view(self.env, observation)
        values = f"Observation: {json.dumps(_plain(observation))}"
        if self.env.unwrapped.render_mode != DRAWN_IN_LETTERS:
            return values
        return f"{picture_of(self.env)}\n{values}"


def _plain(value: Any) -> Any:
    """Convert an observation of any space to JSON values, with floats rounded to four digits."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return round(value, 4) if isinstance(value, float) else value if isinstance(value, (str, int)) else str(value)
