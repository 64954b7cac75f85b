"""Write an archive of a given length: passages of random sentences, with given facts at given depths."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from resources_servers.long_context.facts import ANY_FACT, CITIES, PEOPLE, Fact, Key, written
from resources_servers.long_context.phrases import GENRES, PROSE

FIRST_PASSAGE, LAST_PASSAGE = date(2021, 1, 1).toordinal(), date(2024, 12, 31).toordinal()
HIGHEST_REVISION = 9
WITHDRAWN_SHARE = 0.1
PROSE_SHARE = 0.3
SENTENCES = (4, 5, 6, 7)
ROOM = 1_600
"""The number of characters at the end of the archive that are reserved for the last needles' passages."""
IDS, ID_STEP = 90_000, 48_611
"""The number of five-digit ids, and the step from one id to the next. They are coprime, so no id repeats."""


class Heading(NamedTuple):
    """The first line of a passage, apart from the passage's id."""

    genre: str
    day: int
    revision: int
    is_withdrawn: bool = False

    def __str__(self) -> str:
        mark = ", withdrawn" if self.is_withdrawn else ""
        return f"{self.genre.capitalize()}, {written(self.day)}, revision {self.revision}{mark}"


class Needle(NamedTuple):
    """A fact to place in the archive. Its passage does not contain other needles."""

    at: float
    """The needle's relative position in the archive, from 0 (beginning) to 1 (end)."""
    fact: Fact
    heading: Heading | None = None
    """The heading of the needle's passage. By default, it is random and does not mark the passage as withdrawn."""
    is_source: bool = True
    """Whether the answer depends on this needle. Other needles are distractors."""


class Archive(NamedTuple):
    """A generated archive: its text, and the passages on which the answer depends."""

    text: str
    sources: list[str]
    """The ids of the passages on which the answer depends, in the order in which they appear in the text."""
    depths: list[float]
    """The depth of the fact in each passage of `sources`: the share of the text before the fact, from 0 to 1."""


def a_heading(rng: random.Random, *, is_withdrawn: bool = False) -> Heading:
    day = rng.randint(FIRST_PASSAGE, LAST_PASSAGE)
    return Heading(rng.choice(GENRES), day, rng.randint(1, HIGHEST_REVISION), is_withdrawn)


def write_archive(rng: random.Random, needles: Sequence[Needle], reserved: frozenset[Key], length: int) -> Archive:
    """Return an archive of almost `length` characters that contains the needles.

    The random sentences around the needles do not state facts with `reserved` keys.
    """
    ids = _ids(rng)
    waiting = deque(sorted(needles, key=lambda needle: needle.at))
    passages: list[str] = []
    sources: list[str] = []
    offsets: list[int] = []
    size = 0
    while True:
        needle = waiting.popleft() if waiting and waiting[0].at * (length - ROOM) <= size else None
        heading = (needle and needle.heading) or a_heading(
            rng, is_withdrawn=needle is None and rng.random() < WITHDRAWN_SHARE
        )
        sentences = [_filler(rng, heading.genre, reserved) for _ in range(rng.choice(SENTENCES))]
        place = rng.randrange(len(sentences))
        if needle is not None:
            sentences[place] = needle.fact.sentence(heading.genre, rng)
        name = next(ids)
        passage = f"[{name}] {heading}\n{' '.join(sentences)}\n\n"
        if needle is not None and needle.is_source:
            sources.append(name)
            offsets.append(size + passage.index(sentences[place]))
        elif needle is None and not waiting and size + len(passage) > length:
            break
        passages.append(passage)
        size += len(passage)
    return Archive("".join(passages), sources, [offset / size for offset in offsets])


def _ids(rng: random.Random) -> Iterator[str]:
    number = rng.randrange(IDS)
    while True:
        yield f"P{10_000 + number}"
        number = (number + ID_STEP) % IDS


def _filler(rng: random.Random, genre: str, reserved: frozenset[Key]) -> str:
    if rng.random() < PROSE_SHARE:
        phrase = rng.choice(PROSE[genre])
        return phrase.format(person=rng.choice(PEOPLE), city=rng.choice(CITIES), number=rng.randint(2, 60))
    while (fact := rng.choice(ANY_FACT)(rng)).key in reserved:
        pass
    return fact.sentence(genre, rng)
