"""The other players of a TextArena game. They make random legal moves."""

from __future__ import annotations

import copy
import itertools
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

MOST_TRIES = 200
MOST_MOVES = 1000
_MOVE = re.compile(r"\[[^\[\]\n]{1,40}\]")
_NUMBER = re.compile(r"\d+")


class Others:
    def __init__(self, env: Any, base: Any, rng: random.Random) -> None:
        self._env, self._base, self._rng = env, base, rng
        self._heard: dict[int, list[str]] = {}

    def move(self) -> bool:
        """Make moves until it is the turn of player 0. Return whether the game is over."""
        for _ in range(MOST_MOVES):
            player = self._base.state.current_player_id
            if player == 0:
                return False
            heard = self._heard.setdefault(player, [])
            heard.append("\n".join(text for _, text, _ in self._base.state.get_current_player_observation()))
            move = next((each for each in self._moves(heard) if self._is_legal(each, player)), None)
            if move is None:
                raise RuntimeError(f"player {player}, who plays at random, found no legal move")
            if self._env.step(move)[0]:
                return True
        raise RuntimeError(f"the other players made {MOST_MOVES} moves in a row")

    def _moves(self, heard: list[str]) -> list[str]:
        """Return possible moves in random order: those that the game has shown last, then all, then other numbers."""
        last, shown = (sorted(set(_MOVE.findall(text))) for text in (heard[-1], "\n".join(heard)))
        varied = sorted({move for each in shown for move in _with_other_numbers(each)})
        groups = (self._rng.sample(each, len(each)) for each in (last, shown, varied))
        return list(dict.fromkeys(itertools.chain(*groups)))[:MOST_TRIES]

    def _is_legal(self, move: str, player: int) -> bool:
        """Try a move in a copy of the game."""
        numpy = sys.modules.get("numpy")
        before = random.getstate(), numpy.random.get_state() if numpy else None
        try:
            tried = copy.deepcopy(self._env)
            tried.step(move)
            state = tried.state
            return not getattr(state, "error_count", 0) and not state.game_info[player].get("invalid_move")
        except Exception:  # noqa: BLE001 - a game may raise anything for an odd move
            return False
        finally:
            random.setstate(before[0])
            if numpy:
                numpy.random.set_state(before[1])


def _with_other_numbers(move: str) -> Iterator[str]:
    """Yield a move with all digits in place of its numbers, if it has one or two."""
    texts = _NUMBER.split(move)
    if len(texts) in (2, 3):
        for digits in itertools.product("0123456789", repeat=len(texts) - 1):
            yield "".join(itertools.chain(*zip(texts, (*digits, ""), strict=True)))
