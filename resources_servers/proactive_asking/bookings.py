"""The kinds of bookings, and the `Book` that stores a rollout's bookings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import ToolError
from nemo_gym.grading import normalised

MOST_BOOKINGS = 20
"""The limit on bookings per rollout. It stops a policy that makes bookings in a loop."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="YYYY-MM-DD")]
Clock = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="HH:MM on the 24-hour clock")]


class Booking(BaseModel):
    """A base class for bookings. The fields of a subclass are the arguments of its tool."""

    model_config = ConfigDict(extra="forbid")

    def is_like(self, other: Booking) -> bool:
        """Return whether two bookings are equal, ignoring case and spacing of texts."""
        return type(self) is type(other) and _compared(self) == _compared(other)


class Table(Booking):
    """Book a table in a restaurant."""

    restaurant: Name
    date: Day
    time: Clock
    guests: int = Field(ge=1, le=100)


class Room(Booking):
    """Book a meeting room in the office."""

    room: Name
    date: Day
    start_time: Clock
    duration_minutes: int = Field(ge=1, le=1440)


class Flight(Booking):
    """Book a one-way flight for one passenger."""

    origin: Name = Field(description="a city")
    destination: Name = Field(description="a city")
    date: Day
    passenger: Name = Field(description="first and last name")


class Parcel(Booking):
    """Order a courier who takes a parcel from one address to another."""

    pickup_address: Name = Field(description="street and number")
    delivery_address: Name = Field(description="street and number")
    date: Day
    weight_kg: float = Field(gt=0, le=1000)


class Appointment(Booking):
    """Make an appointment at a doctor's."""

    doctor: Name = Field(description="last name")
    patient: Name = Field(description="first and last name")
    date: Day
    time: Clock


KINDS: dict[str, type[Booking]] = {
    "book_table": Table,
    "book_room": Room,
    "book_flight": Flight,
    "order_courier": Parcel,
    "make_appointment": Appointment,
}
"""The kind of booking that each tool makes."""


class Book:
    """The bookings of one rollout, by number."""

    def __init__(self) -> None:
        self._entries: dict[int, Booking] = {}
        self._made = 0

    @property
    def entries(self) -> list[Booking]:
        return list(self._entries.values())

    def add(self, booking: Booking) -> dict[str, Any]:
        """Add a booking and return it with its number as `booking_id`."""
        if self._made == MOST_BOOKINGS:
            raise ToolError(f"There were {MOST_BOOKINGS} bookings; no more can be made.")
        self._made += 1
        self._entries[self._made] = booking
        return self._as_dict(self._made)

    def cancel(self, booking_id: int) -> dict[str, Any]:
        """Remove a booking and return it under the key `cancelled`."""
        if booking_id not in self._entries:
            raise ToolError(f"There is no such booking. The bookings are: {list(self._entries) or 'none'}.")
        cancelled = self._as_dict(booking_id)
        del self._entries[booking_id]
        return {"cancelled": cancelled}

    def listed(self) -> list[dict[str, Any]]:
        return [self._as_dict(number) for number in self._entries]

    def _as_dict(self, number: int) -> dict[str, Any]:
        return {"booking_id": number, **self._entries[number].model_dump(mode="json")}


def _compared(booking: Booking) -> dict[str, Any]:
    return {name: normalised(value) if isinstance(value, str) else value for name, value in booking}
