"""Questions about passages that contradict each other. The answer depends on which of the passages count."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from resources_servers.long_context.archive import HIGHEST_REVISION, Heading, a_heading
from resources_servers.long_context.facts import ATTRIBUTES, CITIES, SIDES, Fact, a_number, a_thing, reading
from resources_servers.long_context.phrases import GENRES
from resources_servers.long_context.tasks import NUMBER, Task, distinct, keys_of, listed, scatter_under

MOST_VERSIONS = 8
CONTRADICTING = "If passages contradict each other,"
NOT_WITHDRAWN = "Passages marked as withdrawn do not count."


class Ranking(NamedTuple):
    """A rule that decides which of several contradictory passages counts, and the headings of these passages.

    The heading of the passage that counts comes first.
    """

    rule: str
    headings: list[Heading]


def relevance(rng: random.Random, level: int) -> Task:
    """Ask for a value with several versions in the archive. The question states which version counts."""
    thing, city, attribute = a_thing(rng), rng.choice(CITIES), rng.choice(ATTRIBUTES)
    rank, count = rng.choice(RULES), rng.randint(3, min(3 + level, MOST_VERSIONS))
    rule, headings = rank(rng, _versions(rng, count))
    # If the rule is not about dates, the latest version must not be the answer, because a model might guess it.
    while rank not in BY_DATE and headings[0] == _latest_first(headings)[0]:
        rule, headings = rank(rng, _versions(rng, count))
    near = _near_duplicates(rng, thing, city, attribute)
    values = distinct(lambda: a_number(rng), len(headings), but=[fact.fields["value"] for fact in near])
    versions = [
        (reading(thing, city, attribute, value), heading, number == 0)
        for number, (value, heading) in enumerate(zip(values, headings, strict=True))
    ]
    needles = scatter_under(rng, [*versions, *((fact, None, False) for fact in near)])
    wrong = [needle.fact.fields["value"] for needle in needles if not needle.is_source]
    question = f"What is the {attribute} of the {thing} in {city}? {rule}"
    return Task(question, values[0], "number", NUMBER, needles, keys_of(needles), wrong)


def citations(rng: random.Random, level: int) -> Task:
    """Ask for the total of values from several passages, and for the ids of these passages."""
    places = distinct(lambda: (a_thing(rng), rng.choice(CITIES)), rng.randint(2, min(2 + level, 5)))
    attribute = "meter reading"
    values = [a_number(rng) for _ in places]
    sources = [
        (reading(*place, attribute, value), a_heading(rng), True) for place, value in zip(places, values, strict=True)
    ]
    withdrawn = [
        (reading(*place, attribute, a_number(rng)), a_heading(rng, is_withdrawn=True), False)
        for place in rng.sample(places, rng.randint(1, len(places)))
    ]
    near = [(fact, None, False) for fact in _near_duplicates(rng, *places[0], attribute) if fact.key not in places]
    needles = scatter_under(rng, [*sources, *withdrawn, *near])
    things = listed([f"the {thing} in {city}" for thing, city in places])
    question = f"What do the {attribute}s of these add up to: {things}? {NOT_WITHDRAWN}"
    total = str(sum(map(int, values)))
    return Task(question, total, "number", NUMBER, needles, keys_of(needles), asks_for_sources=True)


def _near_duplicates(rng: random.Random, thing: str, city: str, attribute: str) -> list[Fact]:
    """Return a fact about another attribute of `thing`, and facts about two things with almost the same name."""
    side, _, name = thing.partition(" ")
    others = rng.sample([each for each in SIDES if each != side], 2)
    other_attribute = rng.choice([each for each in ATTRIBUTES if each != attribute])
    return [
        reading(thing, city, other_attribute, a_number(rng)),
        *(reading(f"{other} {name}", city, attribute, a_number(rng)) for other in others),
    ]


def _versions(rng: random.Random, count: int) -> list[Heading]:
    """Return headings whose dates and revisions are all different."""
    days = distinct(lambda: a_heading(rng).day, count)
    revisions = rng.sample(range(1, HIGHEST_REVISION + 1), count)
    return [Heading(rng.choice(GENRES), *each) for each in zip(days, revisions, strict=True)]


def _by_date(rng: random.Random, headings: list[Heading]) -> Ranking:
    rule = f"{CONTRADICTING} the one with the latest date counts, regardless of its revision."
    return Ranking(rule, _latest_first(headings))


def _by_revision(rng: random.Random, headings: list[Heading]) -> Ranking:
    rule = f"{CONTRADICTING} the one with the highest revision counts, regardless of its date."
    return Ranking(rule, sorted(headings, key=lambda heading: -heading.revision))


def _by_genre(rng: random.Random, headings: list[Heading]) -> Ranking:
    order = rng.sample(GENRES, len(GENRES))
    rule = (
        f"{CONTRADICTING} the one whose kind comes first in this list counts: {', '.join(order)}. Of several of the "
        "same kind, the one with the latest date counts."
    )
    ranked = sorted(headings, key=lambda heading: (order.index(heading.genre), -heading.day))
    return Ranking(rule, ranked)


def _by_date_unless_withdrawn(rng: random.Random, headings: list[Heading]) -> Ranking:
    ordered = _latest_first(headings)
    first = rng.randrange(1, len(ordered))
    withdrawn = [heading._replace(is_withdrawn=True) for heading in ordered[:first]]
    rule = f"{NOT_WITHDRAWN} {CONTRADICTING} the one with the latest date of the others counts."
    return Ranking(rule, [*ordered[first:], *withdrawn])


def _latest_first(headings: list[Heading]) -> list[Heading]:
    return sorted(headings, key=lambda heading: -heading.day)


RULES: tuple[Callable[[random.Random, list[Heading]], Ranking], ...] = (
    _by_date,
    _by_revision,
    _by_genre,
    _by_date_unless_withdrawn,
)
BY_DATE = (_by_date, _by_date_unless_withdrawn)
