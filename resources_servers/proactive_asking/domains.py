"""The details of each kind of booking, and templates for the users' requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, NamedTuple

from nemo_gym import shared_rows

TODAY = date(2025, 3, 3)
"""The current day in all conversations, a Monday. Every booking is for a later day."""

Values = dict[str, Any]


class Detail(NamedTuple):
    """One argument of a booking."""

    clause: str
    """The wording of the detail in a request."""
    says: str
    """The user's answer to a question for the detail."""
    asked_with: tuple[str, ...]
    """Words that identify a question for the detail. The first is the detail's name in a sentence."""


class Domain(NamedTuple):
    """A kind of booking, with templates for requests."""

    tool: str
    requests: tuple[str, ...]
    """Templates for requests. `{more}` is replaced by the clauses of the included details."""
    details: dict[str, Detail]
    draw: Callable[[random.Random], Values]
    """A function that draws values for all arguments of the tool."""


DATE = Detail(" on {date}", "On {date}, please.", ("the date", "date", "day", "when"))
TIME = Detail(" at {time}", "At {time}.", ("the time", "time", "hour", "when", "o'clock", "how late"))
GUESTS = Detail(
    " for {guests} people",
    "We are {guests} people.",
    ("the number of guests", "guests", "people", "persons", "how many", "party", "seats"),
)
START = Detail(
    " at {start_time}",
    "From {start_time} on.",
    ("the start time", "time", "hour", "when", "begin", "start", "o'clock"),
)
LENGTH = Detail(
    " for {duration_minutes} minutes",
    "For {duration_minutes} minutes.",
    ("the duration", "duration", "how long", "long", "minutes", "hours", "until", "end"),
)
DESTINATION = Detail(
    " to {destination}",
    "I want to go to {destination}.",
    ("the destination", "destination", "where", "where to", "which city", "fly to", "airport"),
)
PASSENGER = Detail(
    " for {passenger}",
    "The passenger is {passenger}.",
    ("the passenger's name", "name", "names", "passenger", "passengers", "who", "whose"),
)
DELIVERY = Detail(
    " and brought to {delivery_address}",
    "It goes to {delivery_address}.",
    ("the delivery address", "address", "where", "deliver", "delivered", "destination", "recipient"),
)
WEIGHT = Detail(
    "; it weighs {weight_kg:g} kg",
    "It weighs {weight_kg:g} kg.",
    ("the weight", "weight", "weigh", "weighs", "heavy", "kg", "kilograms", "kilos"),
)
PATIENT = Detail(
    " for {patient}",
    "It is for {patient}.",
    ("the patient's name", "name", "patient", "who", "whose"),
)

NAMES = shared_rows("names.jsonl")
PEOPLE = tuple(f"{row['given_name']} {row['surname']}" for row in NAMES)
SURNAMES = tuple(row["surname"] for row in NAMES)
CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
STREETS = ("Harbour Street", "Mill Lane", "Station Road", "Linden Avenue", "Castle Square", "Orchard Way")
RESTAURANTS = ("Osteria Lume", "The Copper Kettle", "Saffron Yard", "Chez Odile", "Blue Heron")
ROOMS = ("Juniper", "Aspen", "Cedar", "Willow", "Rowan")


def in_words(values: Values) -> Values:
    """Return the values with the date in prose, such as `14 March 2025`."""
    day = date.fromisoformat(values["date"])
    return {**values, "date": f"{day.day} {day:%B %Y}"}


def _day(rng: random.Random) -> str:
    return (TODAY + timedelta(days=rng.randrange(2, 90))).isoformat()


def _clock(rng: random.Random, first: int, last: int) -> str:
    return f"{rng.randrange(first, last):02d}:{rng.choice((0, 15, 30, 45)):02d}"


def _table(rng: random.Random) -> Values:
    evening = _clock(rng, 18, 22)
    return {
        "restaurant": rng.choice(RESTAURANTS),
        "date": _day(rng),
        "time": evening,
        "guests": rng.randrange(2, 13),
    }


def _room(rng: random.Random) -> Values:
    return {
        "room": rng.choice(ROOMS),
        "date": _day(rng),
        "start_time": _clock(rng, 8, 17),
        "duration_minutes": rng.choice((15, 25, 40, 50, 75, 100)),
    }


def _flight(rng: random.Random) -> Values:
    origin, destination = rng.sample(CITIES, 2)
    return {
        "origin": origin,
        "destination": destination,
        "date": _day(rng),
        "passenger": rng.choice(PEOPLE),
    }


def _parcel(rng: random.Random) -> Values:
    streets = rng.sample(STREETS, 2)
    pickup, delivery = (f"{rng.randrange(1, 180)} {street}" for street in streets)
    weight = rng.randrange(2, 60) / 2
    return {"pickup_address": pickup, "delivery_address": delivery, "date": _day(rng), "weight_kg": weight}


def _appointment(rng: random.Random) -> Values:
    return {
        "doctor": rng.choice(SURNAMES),
        "patient": rng.choice(PEOPLE),
        "date": _day(rng),
        "time": _clock(rng, 8, 17),
    }


DOMAINS: dict[str, Domain] = {
    "restaurant": Domain(
        "book_table",
        ("Please book a table at {restaurant}{more}.", "We want to eat at {restaurant}; get us a table{more}."),
        {"date": DATE, "time": TIME, "guests": GUESTS},
        _table,
    ),
    "meeting_room": Domain(
        "book_room",
        ("Book the meeting room {room}{more}, please.", "Could you reserve {room}, the meeting room,{more}?"),
        {"date": DATE, "start_time": START, "duration_minutes": LENGTH},
        _room,
    ),
    "flight": Domain(
        "book_flight",
        ("I need a flight from {origin}{more}.", "Can you book a flight out of {origin}{more}?"),
        {"destination": DESTINATION, "date": DATE, "passenger": PASSENGER},
        _flight,
    ),
    "courier": Domain(
        "order_courier",
        ("Have a parcel picked up at {pickup_address}{more}.", "I need a parcel fetched at {pickup_address}{more}."),
        {"date": DATE, "delivery_address": DELIVERY, "weight_kg": WEIGHT},
        _parcel,
    ),
    "doctor": Domain(
        "make_appointment",
        (
            "I need an appointment with Doctor {doctor}{more}.",
            "Get an appointment at Doctor {doctor}'s{more}.",
        ),
        {"patient": PATIENT, "date": DATE, "time": TIME},
        _appointment,
    ),
}
