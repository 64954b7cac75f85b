"""Tasks of three environments that are small enough for a table to learn: a counter, questions and a game."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nemo_gym.jsonl import JsonObject


class TaskSet(NamedTuple):
    """Tasks of one environment."""

    agent: str
    rows: Callable[[], list[JsonObject]]
    settings: JsonObject
    """Overrides of the environment's config."""

    def held_out(self) -> list[JsonObject]:
        """Return the tasks that are never trained on: each fourth."""
        return self.rows()[::4]

    def trained_on(self) -> list[JsonObject]:
        """Return the other tasks."""
        return [row for number, row in enumerate(self.rows()) if number % 4]


def counters() -> list[JsonObject]:
    """Return tasks of one prompt: the counter's initial value can only be found out with a tool."""
    prompt = "Bring the counter to 5, then say that it is done."
    return [_row(prompt, initial_count=initial, expected_count=5) for initial in range(1, 10) if initial != 5]


def questions() -> list[JsonObject]:
    """Return multiple-choice questions about sums."""
    found = []
    for one, other, letter in [(2, 9, "C"), (4, 4, "A"), (7, 5, "D"), (3, 6, "B"), (8, 7, "A"), (1, 9, "C")]:
        numbers = range(one + other - "ABCD".index(letter), one + other + 4)
        options = [{letter: str(number)} for letter, number in zip("ABCD", numbers, strict=False)]
        lines = [f"{letter}: {number}" for option in options for letter, number in option.items()]
        prompt = "\n".join([f"What is {one} + {other}?", *lines, "Put the letter into \\boxed{}."])
        found.append(_row(prompt, options=options, expected_answer=letter))
    return found


def rooms() -> list[JsonObject]:
    """Return Sokoban levels that need two or three moves."""
    levels = [
        "#######\n#@$ . #\n#######",
        "#####\n#   #\n#@$ #\n# . #\n#   #\n#####",
        "#######\n#     #\n#. $@ #\n#######",
        "####\n#. #\n#$ #\n# @#\n####",
    ]
    rules = "Push every box $ onto a goal. Answer with one word: Up, Down, Left or Right."
    return [_row(rules, level=level) for level in levels]


def _row(prompt: str, **fields: object) -> JsonObject:
    return {"responses_create_params": {"input": [{"role": "user", "content": prompt}]}, **fields}


TASK_SETS = {
    "example_session_state_mgmt": TaskSet("example_session_state_mgmt_simple_agent", counters, {}),
    "mcqa": TaskSet("mcqa_simple_agent", questions, {}),
    # Otherwise a random walk of a hundred moves solves most of the rooms.
    "grl_sokoban": TaskSet("grl_sokoban_gymnasium_agent", rooms, {"max_moves": 4}),
}
