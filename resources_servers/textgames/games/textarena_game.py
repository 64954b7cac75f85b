"""Games of TextArena. The model is player 0; the others make random legal moves."""

from __future__ import annotations

import random
from typing import Any

import textarena as ta
from others import Others
from serve import NotPlayable, seed_all

MOST_PLAYERS = 15
PLAYER_ACTION = ta.ObservationType.PLAYER_ACTION


class Game:
    def __init__(self, asked: dict[str, Any]) -> None:
        name, self._seed = asked["game"], asked["seed"]
        if name not in ta.envs.registration.ENV_REGISTRY:
            raise NotPlayable(f"TextArena has no game '{name}'")
        self._env, self._players = self._started(name, asked["env_kwargs"], asked["players"])
        self._base = self._env
        # The observation wrappers repeat the whole game in each turn, but the conversation already has it.
        while isinstance(self._base, ta.Wrapper):
            self._base = self._base.env
        self._others = Others(self._env, self._base, random.Random(f"others {self._seed}"))
        self._is_over = self._others.move()
        self.beginning = self._news()

    def _started(self, name: str, env_kwargs: dict[str, Any], players: int | None) -> tuple[Any, int]:
        """Start the game with the given number of players, or with the smallest one that it allows."""
        refused = None
        for count in [players] if players else range(1, MOST_PLAYERS + 1):
            try:
                seed_all(self._seed)
                env = ta.make(name, **env_kwargs)
                env.reset(num_players=count, seed=self._seed)
                return env, count
            except AssertionError as error:
                refused = error
            except TypeError as error:
                raise NotPlayable(f"'{name}' cannot be created with {env_kwargs}: {error}") from error
        raise NotPlayable(f"'{name}' cannot be played by {players or f'1 to {MOST_PLAYERS}'} players: {refused}")

    def step(self, action: str) -> tuple[str, float, bool, bool]:
        if not self._is_over:
            self._is_over = bool(self._env.step(action)[0]) or self._others.move()
        if not self._is_over:
            return self._news(), 0.0, False, False
        rewards, about = self._env.close()
        if not rewards or rewards.get(0) is None:
            raise RuntimeError("the game ended without a reward of player 0")
        reason = (about or {}).get(0, {}).get("reason")
        return "\n".join(filter(None, [self._news(), reason])), rewards[0], True, False

    def _news(self) -> str:
        """Return what player 0 has not seen yet, except for the player's own move."""
        observations = self._base.state.observations
        news, observations[0] = observations.get(0, []), []
        # Some games do not say who made a move.
        own = (0,) if self._players > 1 else (0, ta.GAME_ID)
        return "\n".join(
            f"Player {sender}: {text}" if kind is PLAYER_ACTION and sender >= 0 else text
            for sender, text, kind in news
            if kind is not PLAYER_ACTION or sender not in own
        )
