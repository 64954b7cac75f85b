"""Parse an environment's action from a model's text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from nemo_gym.grading import actions_in, strip_reasoning

MOST_NAMED = 1000
"""Maximum number of actions that are listed by name."""


class NoTextActions(Exception):
    """An error for actions that cannot be written as text, are too many to list, or do not match the given names."""


class Actions:
    """The actions of one environment: their description for the model, and their parser."""

    def __init__(self, space: Any, names: Sequence[str] = ()) -> None:
        self._space = space
        self._kind = type(space).__name__
        if self._kind not in ("Discrete", "MultiDiscrete", "MultiBinary", "Box", "Text"):
            raise NoTextActions(f"actions of the kind {self._kind} cannot be written as text")
        if self._kind != "Discrete":
            self._words: dict[str, int] = {}
            return
        count, start = int(space.n), int(space.start)
        if count > MOST_NAMED:
            raise NoTextActions(f"there are {count} actions, but at most {MOST_NAMED} are supported")
        if names and len(names) != count:
            raise NoTextActions(f"there are {count} actions, but {len(names)} names. Give one name per action")
        self._words = {str(start + place): start + place for place in range(count)}
        self._names = {name: start + place for place, name in enumerate(names)}
        self._words |= self._names

    @property
    def as_text(self) -> str:
        """One sentence that describes the actions."""
        if self._kind == "Discrete":
            shown = [f"{name} ({number})" for name, number in self._names.items()] or list(self._words)
            return f"Your actions: {', '.join(shown)}."
        if self._kind == "Text":
            return f"Your action is a text of {self._space.min_length} to {self._space.max_length} characters."
        return f"Your action is a JSON list of numbers: {self._space}."

    def read(self, text: str) -> Any:
        """Parse the last action in an answer. Return None if there is no valid one."""
        if self._kind == "Discrete":
            found = actions_in(text, self._words)
            return self._words[found[-1]] if found else None
        shown = strip_reasoning(text)
        action = shown.strip() if self._kind == "Text" else self._numbers_in(shown)
        return action if action is not None and self._space.contains(action) else None

    def _numbers_in(self, text: str) -> Any:
        # Import numpy here, because it may be missing without the extra `gymnasium`.
        import numpy

        lists = _list_pattern(len(self._space.shape)).findall(text)
        try:
            return numpy.array(json.loads(lists[-1]), dtype=self._space.dtype).reshape(self._space.shape)
        except (IndexError, ValueError, TypeError, OverflowError, RecursionError):
            return None


@cache
def _list_pattern(depth: int) -> re.Pattern[str]:
    """Return a regex for a JSON list of numbers, or of such lists, with at most `depth` levels."""
    pattern = r"\[[^\[\]]*\]"
    for _ in range(depth - 1):
        pattern = rf"\[(?:[^\[\]]|{pattern})*\]"
    return re.compile(pattern)
