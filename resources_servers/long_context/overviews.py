"""Questions that need all matching entries of the archive, such as counts, totals and the order of events."""

from __future__ import annotations

import random

from resources_servers.long_context.facts import (
    ACTIONS,
    CITIES,
    GOODS,
    STATUSES,
    Fact,
    a_count,
    a_day,
    a_number,
    a_thing,
    delivery,
    event,
)
from resources_servers.long_context.tasks import NUMBER, Task, distinct, keys_of, listed, scatter

EVENT_LABELS = "ABCDE"


def count(rng: random.Random, level: int) -> Task:
    """Ask how many deliveries of certain goods to a city have a certain status."""
    goods, city, status = rng.choice(GOODS), rng.choice(CITIES), rng.choice(STATUSES)
    sizes = [a_count(rng) for _ in range(rng.randint(2, 5 + 2 * level))]
    needles = scatter(
        rng, _deliveries(rng, sizes, goods, city, [status]), distracting=_others(rng, level, goods, city, status)
    )
    question = f"How many deliveries of {goods} to {city} were {status}?"
    return Task(question, str(len(sizes)), "number", NUMBER, needles, keys_of(needles))


def aggregate(rng: random.Random, level: int) -> Task:
    """Ask for the total, largest or mean size of the deliveries with a certain status."""
    goods, city, status = rng.choice(GOODS), rng.choice(CITIES), rng.choice(STATUSES)
    operation = rng.choice(("total", "largest", "mean"))
    sizes = distinct(lambda: a_count(rng), rng.randint(2, 4 + level))
    if operation == "mean":
        # Make the mean a whole number, so that rounding does not matter.
        sizes[0] += -sum(sizes) % len(sizes)
    found = {"total": sum(sizes), "largest": max(sizes), "mean": sum(sizes) // len(sizes)}
    asked = {
        "total": f"How many crates of {goods} do all {status} deliveries to {city} hold together?",
        "largest": f"How many crates of {goods} does the largest {status} delivery to {city} hold?",
        "mean": f"How many crates of {goods} do the {status} deliveries to {city} hold on average?",
    }
    facts = _deliveries(rng, sizes, goods, city, [status])
    needles = scatter(rng, facts, distracting=_others(rng, level, goods, city, status))
    return Task(asked[operation], str(found[operation]), "number", NUMBER, needles, keys_of(needles))


def _others(rng: random.Random, level: int, goods: str, city: str, status: str) -> list[Fact]:
    """Return deliveries of the same goods to the same city, but with other statuses."""
    sizes = [a_count(rng) for _ in range(rng.randint(2, 3 + level))]
    return _deliveries(rng, sizes, goods, city, [each for each in STATUSES if each != status])


def _deliveries(rng: random.Random, sizes: list[int], goods: str, city: str, statuses: list[str]) -> list[Fact]:
    orders = distinct(lambda: a_number(rng), len(sizes))
    return [
        delivery(order, size, goods, city, rng.choice(statuses)) for order, size in zip(orders, sizes, strict=True)
    ]


def event_order(rng: random.Random, level: int) -> Task:
    """Ask which of two events came first, or for the order of several events."""
    labels = EVENT_LABELS[: rng.randint(2, len(EVENT_LABELS))]
    days = distinct(lambda: a_day(rng), len(labels))
    events = distinct(lambda: (a_thing(rng), rng.choice(CITIES), rng.choice(ACTIONS)), len(labels))
    facts = [event(*each, day) for each, day in zip(events, days, strict=True)]
    needles = scatter(rng, facts)
    described = [f"the {thing} in {city} was {action}" for thing, city, action in events]
    named = listed([f"{label}: {each}" for label, each in zip(labels, described, strict=True)])
    order = [label for _, label in sorted(zip(days, labels, strict=True))]
    if len(labels) == 2:
        question = f"Which of these events came first? {named}."
        return Task(question, order[0], "text", "letter", needles, keys_of(needles))
    question = f"Put these events in the order of their dates, from the earliest to the latest. {named}."
    return Task(question, order, "list", "letters, separated by commas", needles, keys_of(needles))
