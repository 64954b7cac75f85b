"""A question about an archive, and the facts that the archive must state for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from resources_servers.long_context.archive import Heading, Needle
from resources_servers.long_context.facts import Fact, Key
from resources_servers.long_context.grading import Grader

Drawn = TypeVar("Drawn")

NUMBER = "number, in digits"


class Task(NamedTuple):
    """A question, its answer, and the facts that the archive must state."""

    question: str
    answer: str | list[str]
    grader: Grader
    form: str
    """The required form of the answer, such as "number, in digits"."""
    needles: list[Needle]
    reserved: frozenset[Key]
    """Keys whose facts must be stated only by needles, so that the rest of the archive cannot change the answer."""
    distractors: Sequence[str] = ()
    """Wrong answers that the archive suggests."""
    asks_for_sources: bool = False


Kind = Callable[[random.Random, int], Task]
"""A function that draws a task of a level. The level is 1 for 4k tokens, plus 1 for each doubling."""


def keys_of(needles: Sequence[Needle]) -> frozenset[Key]:
    return frozenset(needle.fact.key for needle in needles)


def scatter(rng: random.Random, facts: Sequence[Fact], *, distracting: Sequence[Fact] = ()) -> list[Needle]:
    """Return needles in random order, at depths that cover the whole archive."""
    headed = [(fact, None, True) for fact in facts] + [(fact, None, False) for fact in distracting]
    return scatter_under(rng, headed)


def scatter_under(rng: random.Random, headed: Sequence[tuple[Fact, Heading | None, bool]]) -> list[Needle]:
    """Scatter facts with given headings. The boolean of each tuple states whether the answer depends on its fact."""
    shuffled = rng.sample(headed, len(headed))
    return [Needle(at, *each) for at, each in zip(depths(rng, len(shuffled)), shuffled, strict=True)]


def depths(rng: random.Random, count: int) -> list[float]:
    """Return ascending depths, one from each of `count` equal parts of the archive."""
    return [(part + rng.random()) / count for part in range(count)]


def distinct(draw: Callable[[], Drawn], count: int, *, but: Sequence[Drawn] = ()) -> list[Drawn]:
    """Draw `count` different values that are not in `but`."""
    found: dict[Drawn, None] = {}
    while len(found) < count:
        if (value := draw()) not in but:
            found[value] = None
    return list(found)


def listed(names: Sequence[str]) -> str:
    """Join names with semicolons, as a question lists them."""
    return "; ".join(names)
