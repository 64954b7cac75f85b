"""Games of TextArena. Each player is an agent, or the model is player 0 and the others make random legal moves."""

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
        name, self._seed, self._roles = asked["game"], asked["seed"], asked["roles"]
        if name not in ta.envs.registration.ENV_REGISTRY:
            raise NotPlayable(f"TextArena has no game '{name}'")
        self._env, self._players = self._started(name, asked["env_kwargs"], len(self._roles) or asked["players"])
        self._base = self._env
        # The observation wrappers repeat the whole game in each turn, but the conversation already has it.
        while isinstance(self._base, ta.Wrapper):
            self._base = self._base.env
        self._others = Others(self._env, self._base, random.Random(f"others {self._seed}"))
        self._rewards: dict[str, float] = {}
        self._is_over = not self._roles and self._others.move()
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

    @property
    def info(self) -> dict[str, Any]:
        """Whose turn it is, and at the end the reward of each agent."""
        return {"role": self._roles[self._player], "rewards": self._rewards} if self._roles else {}

    @property
    def _player(self) -> int:
        return self._base.state.current_player_id if self._roles else 0

    def step(self, action: str) -> tuple[str, float, bool, bool]:
        if not self._is_over:
            self._is_over = bool(self._env.step(action)[0]) or (not self._roles and self._others.move())
        if not self._is_over:
            return self._news(), 0.0, False, False
        rewards, about = self._env.close()
        without = next((each for each in range(len(self._roles) or 1) if (rewards or {}).get(each) is None), None)
        if without is not None:
            raise RuntimeError(f"the game ended without a reward of player {without}")
        self._rewards = {role: float(rewards[number]) for number, role in enumerate(self._roles)}
        reason = (about or {}).get(self._player, {}).get("reason")
        return "\n".join(filter(None, [self._news(), reason])), rewards[0], True, False

    def _news(self) -> str:
        """Return what the player has not seen yet, except for the player's own move."""
        observations, player = self._base.state.observations, self._player
        news, observations[player] = observations.get(player, []), []
        # Some games do not say who made a move.
        own = (player,) if self._players > 1 else (player, ta.GAME_ID)
        return "\n".join(
            f"Player {sender}: {text}" if kind is PLAYER_ACTION and sender >= 0 else text
            for sender, text, kind in news
            if kind is not PLAYER_ACTION or sender not in own
        )
