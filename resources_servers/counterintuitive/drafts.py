"""Drafts of tasks, each with a conversation, the expected answer, and the answer that ignores the unusual rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from nemo_gym import shared_rows
from nemo_gym.jsonl import JsonObject
from resources_servers.counterintuitive.grading import Form

CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
NAMES = tuple(row["given_name"] for row in shared_rows("names.jsonl"))
ENDINGS = (
    "End with a line of the form 'Answer: …' that holds nothing but {what}.",
    "Explain yourself if you like. Your last line must have the form 'Answer: …' and hold only {what}.",
    "You may think aloud first. Then write one last line, 'Answer: …', which holds only {what}.",
)


class Draft(NamedTuple):
    """A task before it becomes a row."""

    messages: list[JsonObject]
    """Input items of the Responses API."""
    expected: str
    habitual: str
    """The answer that ignores the unusual rule. In a control row (usual rules), it equals `expected`."""
    form: Form = "text"
    documents: dict[str, str] | None = None
    """The texts that `read_document` returns, by document name."""


Scenario = Callable[[random.Random, bool], Draft]
"""A function that draws a task of one kind. If its second argument is False, the task has the usual rule."""


def system(text: str) -> JsonObject:
    return {"role": "system", "content": text}


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def assistant(text: str) -> JsonObject:
    return {"role": "assistant", "content": text}


def ending(rng: random.Random, what: str) -> str:
    """Return the paragraph that asks for the answer in the last line."""
    return "\n\n" + rng.choice(ENDINGS).format(what=what)


def place(rng: random.Random, scenes: tuple[str, ...]) -> str:
    """Return a random scene with its `{city}` and `{name}` filled in."""
    return rng.choice(scenes).format(city=rng.choice(CITIES), name=rng.choice(NAMES))


def shuffled_otherwise(rng: random.Random, usual: tuple[str, ...], *, is_twisted: bool) -> list[str]:
    """Return the words of `usual`, in another order if `is_twisted` and in the same order otherwise."""
    words = list(usual)
    while is_twisted and words == list(usual):
        rng.shuffle(words)
    return words


def listed(parts: list[str]) -> str:
    """Join the parts as in `a, b and c`."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
