"""A user's wishes about the calendar: to add, move, rename or cancel meetings, or to change their length."""

from __future__ import annotations

from collections.abc import Callable

from resources_servers.multiple_intents.lookups import (
    called,
    day_of,
    first_meeting_on,
    free_starts,
    named_meeting,
    next_meeting_with,
    next_working_day,
    said,
)
from resources_servers.multiple_intents.questions import (
    day_of_next_meeting,
    first_person_of_day,
    last_start_of_day,
    meetings_of_day,
    minutes_of_day,
)
from resources_servers.multiple_intents.wishes import Wish
from resources_servers.workplace_assistant.company import LAST_MEETING_DAY, MEETINGS
from resources_servers.workplace_assistant.database import NOW, Database, Row
from resources_servers.workplace_assistant.errands import Call, Draw

LENGTHS_MIN = ("30", "60", "90", "120")


def put_in(draw: Draw) -> Wish | None:
    """Return a wish to add a meeting in a free slot, or None if the drawn day is full."""
    person, name, minutes = draw.colleague(), draw.one(MEETINGS), draw.one(LENGTHS_MIN)
    day = draw.working_day().isoformat()
    starts = free_starts(Database(draw.company), day, int(minutes))
    if not starts:
        return None
    start = draw.one(starts)
    return Wish(
        "add",
        f"put a meeting called '{name}' with {called(person)} into my calendar on {said(day)} at "
        f"{_clock(draw, start)}, {minutes} minutes long",
        f"the new {name} with {called(person)} on {said(day)}",
        lambda _: [
            Call(
                "calendar_create_event",
                {"event_name": name, "participant_email": person, "event_start": start, "duration": minutes},
            )
        ],
        (meetings_of_day(day), minutes_of_day(day), last_start_of_day(day), first_person_of_day(day)),
    )


def move(draw: Draw) -> Wish | None:
    """Return a wish to move a meeting to another day, or None if the drawn day is the same or has no free slot."""
    meeting, day = _upcoming(draw), draw.working_day().isoformat()
    starts = free_starts(Database(draw.company), day, int(meeting["duration"]))
    if day == day_of(meeting) or not starts:
        return None
    start = draw.one(starts)
    return Wish(
        "change",
        f"move {_the(meeting)} to {said(day)} at {_clock(draw, start)}",
        _the(meeting),
        lambda database: _changed(named_meeting(database, meeting), "event_start", start),
        (meetings_of_day(day), meetings_of_day(day_of(meeting)), last_start_of_day(day), first_person_of_day(day)),
    )


def move_after_another(draw: Draw) -> Wish | None:
    """Return a wish to move a meeting to the working day after the next meeting with another colleague."""
    meeting, other = _upcoming(draw), draw.colleague()
    if other == meeting["participant_email"]:
        return None
    start = meeting["event_start"]

    def day_in(database: Database) -> str:
        found = next_meeting_with(database, other)
        return next_working_day(day_of(found)) if found else ""

    def calls(database: Database) -> list[Call]:
        day = day_in(database)
        return _changed(named_meeting(database, meeting), "event_start", f"{day}{start[10:]}") if day else []

    day = day_in(Database(draw.company))
    if day in ("", day_of(meeting)) or day > LAST_MEETING_DAY.isoformat():
        return None
    spoken = f"the first working day after my next meeting with {called(other)}"
    return Wish(
        "change",
        f"move {_the(meeting)} to {spoken}, at the same time of day as before",
        _the(meeting),
        calls,
        (meetings_of_day(day, spoken), minutes_of_day(day, spoken)),
    )


def set_length(draw: Draw) -> Wish | None:
    meeting, minutes = _upcoming(draw), draw.one(LENGTHS_MIN)
    if meeting["duration"] == minutes:
        return None
    return Wish(
        "change",
        f"set the length of {_the(meeting)} to {minutes} minutes",
        _the(meeting),
        lambda database: _changed(named_meeting(database, meeting), "duration", minutes),
        (minutes_of_day(day_of(meeting)),),
    )


def rename(draw: Draw) -> Wish | None:
    meeting, name = _upcoming(draw), draw.one(MEETINGS)
    if meeting["event_name"] == name:
        return None
    return Wish(
        "change",
        f"rename {_the(meeting)} to '{name}'",
        _the(meeting),
        lambda database: _changed(named_meeting(database, meeting), "event_name", name),
    )


def cancel_named(draw: Draw) -> Wish:
    meeting = _upcoming(draw)
    day, person = day_of(meeting), meeting["participant_email"]
    return Wish(
        "cancel",
        f"cancel {_the(meeting)}",
        _the(meeting),
        lambda database: _cancelled(named_meeting(database, meeting)),
        (meetings_of_day(day), day_of_next_meeting(person), last_start_of_day(day), first_person_of_day(day)),
        can_be_undone=False,
    )


def cancel_next(person: str) -> Wish:
    return Wish(
        "cancel",
        f"cancel my next meeting with {called(person)}",
        f"the next meeting with {called(person)}",
        lambda database: _cancelled(next_meeting_with(database, person)),
        (day_of_next_meeting(person),),
        can_be_undone=False,
    )


def cancel_first(day: str) -> Wish:
    return Wish(
        "cancel",
        f"cancel my first meeting on {said(day)}",
        f"the first meeting on {said(day)}",
        lambda database: _cancelled(first_meeting_on(database, day)),
        (first_person_of_day(day), meetings_of_day(day)),
        can_be_undone=False,
    )


def set_length_of_first(day: str, minutes: str) -> Wish:
    return Wish(
        "change",
        f"set the length of my first meeting on {said(day)} to {minutes} minutes",
        f"the first meeting on {said(day)}",
        lambda database: _changed(first_meeting_on(database, day), "duration", minutes),
        (minutes_of_day(day),),
    )


CALENDAR_WISHES: tuple[Callable[[Draw], Wish | None], ...] = (
    put_in, move, move_after_another, set_length, rename, cancel_named,
    lambda draw: cancel_next(draw.colleague()),
    lambda draw: cancel_first(draw.working_day().isoformat()),
    lambda draw: set_length_of_first(draw.working_day().isoformat(), draw.one(LENGTHS_MIN)),
)  # fmt: skip


def _upcoming(draw: Draw) -> Row:
    return draw.one([row for row in draw.company.events.rows.values() if row["event_start"] >= NOW])


def _the(meeting: Row) -> str:
    return f"the {meeting['event_name']} with {called(meeting['participant_email'])} on {said(day_of(meeting))}"


def _clock(draw: Draw, start: str) -> str:
    hour, minute = int(start[11:13]), start[14:16]
    half = "am" if hour < 12 else "pm"
    return draw.one([f"{hour}:{minute}", f"{(hour - 1) % 12 + 1}:{minute} {half}"])


def _changed(meeting: Row | None, column: str, value: str) -> list[Call]:
    if meeting is None or meeting[column] == value:
        return []
    return [
        Call("calendar_update_event", {"event_id": meeting["event_id"], "field": column, "new_value": value}),
    ]


def _cancelled(meeting: Row | None) -> list[Call]:
    return [Call("calendar_delete_event", {"event_id": meeting["event_id"]})] if meeting else []
