"""Facts about Gymnasium's small environments: action names, text views, rules and best rewards."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_MARKED = re.compile(r"\x1b\[41m(.*?)\x1b\[0m")
_TAXI_STOPS = ("R (upper left)", "G (upper right)", "Y (lower left)", "B (lower right)")


@dataclass(frozen=True)
class Known:
    """The facts about one environment: its action names, text view, rules and rewards."""

    actions: tuple[str, ...]
    view: Callable[[Any, Any], str]
    """A function that formats an observation as text. It takes the environment and the observation."""
    rules: str
    best_last_reward: float
    """The highest reward of a final step."""
    unreadable_reward: float
    """The reward of an answer without an action. If steps are penalized, such answers are, too."""


def known(env_id: str) -> Known | None:
    """Return the facts about an environment, regardless of its version, or None if it is unknown."""
    return _KNOWN.get(env_id.partition("-v")[0].removesuffix("8x8"))


def picture_of(env: Any) -> str:
    """Return the environment's text rendering, with brackets instead of red highlights."""
    drawn = env.render()
    return _ESCAPE.sub("", _MARKED.sub(r"[\1]", drawn)).strip("\n") if isinstance(drawn, str) else ""


def _frozen_lake(env: Any, observation: Any) -> str:
    row, column = divmod(int(observation), env.unwrapped.ncol)
    tiles = [[tile.decode() for tile in line] for line in env.unwrapped.desc]
    tiles[row][column] = f"[{tiles[row][column]}]"
    return "\n".join(" ".join(tile.center(3) for tile in line).rstrip() for line in tiles)


def _cliff(env: Any, observation: Any) -> str:
    return picture_of(env)


def _taxi(env: Any, observation: Any) -> str:
    row, column, passenger, goal = env.unwrapped.decode(int(observation))
    where = f"waits at {_TAXI_STOPS[passenger]}" if passenger < len(_TAXI_STOPS) else "is in the taxi"
    # Keep only the map, because the rendering also repeats the last move.
    drawn = [line for line in picture_of(env).splitlines() if line.startswith(("|", "+"))]
    return "\n".join(
        [
            *drawn,
            f"The taxi is in row {row + 1} of 5 and column {column + 1} of 5.",
            f"The passenger {where} and wants to go to {_TAXI_STOPS[goal]}.",
        ]
    )


def _blackjack(env: Any, observation: Any) -> str:
    own, dealers, has_usable_ace = (int(each) for each in observation)
    ace = "with" if has_usable_ace else "without"
    shown = dealers if dealers > 1 else "an ace"
    return f"Your cards add up to {own}, {ace} an ace that counts 11. The dealer shows {shown}."


_KNOWN = {
    "FrozenLake": Known(
        actions=("left", "down", "right", "up"),
        view=_frozen_lake,
        rules="Cross the frozen lake from S to the goal G without falling into a hole H; F is ice that holds. You are "
        "on the square in brackets.",
        best_last_reward=1.0,
        unreadable_reward=0.0,
    ),
    "CliffWalking": Known(
        actions=("up", "right", "down", "left"),
        view=_cliff,
        rules="Walk from the lower left corner to the target T in the lower right one. x is where you are, C is a "
        "cliff: stepping on it costs 100 and takes you back to the start. Every step costs 1.",
        best_last_reward=-1.0,
        unreadable_reward=-100.0,
    ),
    "Taxi": Known(
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        view=_taxi,
        rules="You drive a taxi. Fetch the passenger, take them to where they want to go, and let them out there. | "
        "is a wall, : is none. Every step costs 1, a pickup or dropoff in the wrong place costs 10, bringing the "
        "passenger to their goal earns 20.",
        best_last_reward=20.0,
        unreadable_reward=-10.0,
    ),
    "Blackjack": Known(
        actions=("stick", "hit"),
        view=_blackjack,
        rules="Play one hand of blackjack. Hit takes a card, stick takes no more. More than 21 loses; the dealer "
        "draws up to 17, then the higher hand wins.",
        best_last_reward=1.5,
        unreadable_reward=0.0,
    ),
}
