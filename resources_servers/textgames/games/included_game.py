"""The game that is included: guess a number."""

from __future__ import annotations

import random
import re
from typing import Any

HIGHEST = 20
GUESSES = 6
NAME = "guess_the_number"


def secret_of(seed: int) -> int:
    """Return the number to guess."""
    return random.Random(seed).randint(1, HIGHEST)


class Game:
    def __init__(self, asked: dict[str, Any]) -> None:
        # Imported here, because the oracle imports this file without the program that plays it.
        from serve import NotPlayable

        if asked["game"] != NAME:
            raise NotPlayable(f"there is no game '{asked['game']}'. The included game is '{NAME}'")
        self._secret, self._guesses = secret_of(asked["seed"]), 0
        self.beginning = f"Guess a number from 1 to {HIGHEST} in {GUESSES} guesses. Write it in brackets, such as [7]."

    def step(self, action: str) -> tuple[str, float, bool, bool]:
        self._guesses += 1
        is_last = self._guesses >= GUESSES
        guesses = [int(each) for each in re.findall(r"\[(\d{1,9})\]", action)]
        if not guesses:
            return "Your answer has no number in brackets.", 0.0, False, is_last
        if guesses[-1] == self._secret:
            return "Right.", 1.0, True, False
        return f"It is {'higher' if guesses[-1] < self._secret else 'lower'}.", 0.0, False, is_last
