"""Look up rows of a rollout's database by the user's descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta

from resources_servers.workplace_assistant.company import DAY_ENDS_MIN, DAY_STARTS_MIN, first_name_of
from resources_servers.workplace_assistant.database import NOW, Database, Row

STEP_MIN = 30


def meetings_on(database: Database, day: str) -> list[Row]:
    """Return a day's meetings, earliest first."""
    return _by_start(row for row in database.events if row["event_start"].startswith(day))


def first_meeting_on(database: Database, day: str) -> Row | None:
    """Return the earliest meeting of a day. Return None if the day is free or the first two start at the same time."""
    return _first(meetings_on(database, day))


def next_meeting_with(database: Database, email: str) -> Row | None:
    """Return the next meeting with a colleague, or None. All of today's meetings count, because it is midnight."""
    return _first(
        _by_start(row for row in database.events if row["participant_email"] == email and row["event_start"] >= NOW)
    )


def named_meeting(database: Database, meeting: Row) -> Row | None:
    """Return the only meeting with the name, day and participant of `meeting`, or None."""
    return _only(
        row
        for row in meetings_on(database, day_of(meeting))
        if (row["event_name"], row["participant_email"]) == (meeting["event_name"], meeting["participant_email"])
    )


def free_starts(database: Database, day: str, minutes: int) -> list[str]:
    """Return the half hours of a day's working hours at which a meeting of this length overlaps no other meeting."""
    busy = [(minute_of(row), minute_of(row) + int(row["duration"])) for row in meetings_on(database, day)]
    starts = range(DAY_STARTS_MIN, DAY_ENDS_MIN - minutes + 1, STEP_MIN)
    return [
        f"{day} {start // 60:02}:{start % 60:02}:00"
        for start in starts
        if all(start + minutes <= begins or start >= ends for begins, ends in busy)
    ]


def emails_from(database: Database, sender: str) -> list[Row]:
    """Return the emails received from a colleague, newest first."""
    found = [row for row in database.emails if (row["inbox/outbox"], row["sender/recipient"]) == ("inbox", sender)]
    return sorted(found, key=lambda row: row["sent_datetime"], reverse=True)


def customer_called(database: Database, name: str) -> Row | None:
    """Return the only customer with this name, or None."""
    return _only(row for row in database.customers if row["customer_name"] == name)


def customers_of(database: Database, seller: str, status: str) -> list[Row]:
    return [row for row in database.customers if (row["assigned_to_email"], row["status"]) == (seller, status)]


def named_task(database: Database, name: str, member: str) -> Row | None:
    """Return a member's only task with this name, or None."""
    return _only(row for row in database.tasks if (row["task_name"], row["assigned_to_email"]) == (name, member))


def tasks_of(database: Database, member: str, list_name: str) -> list[Row]:
    return [row for row in database.tasks if (row["assigned_to_email"], row["list_name"]) == (member, list_name)]


def next_working_day(day: str) -> str:
    following = date.fromisoformat(day) + timedelta(days=1)
    while following.weekday() > 4:
        following += timedelta(days=1)
    return following.isoformat()


def day_of(meeting: Row) -> str:
    return meeting["event_start"][: len("2023-11-30")]


def minute_of(meeting: Row) -> int:
    """Return the minute of the day at which a meeting starts."""
    start = datetime.fromisoformat(meeting["event_start"])
    return start.hour * 60 + start.minute


def called(email: str) -> str:
    """Return the first name by which the user refers to a colleague."""
    return first_name_of(email)


def said(day: str) -> str:
    """Return a day as the user writes it, such as `March 5`."""
    return f"{date.fromisoformat(day):%B} {date.fromisoformat(day).day}"


def _by_start(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["event_start"])


def _first(meetings: list[Row]) -> Row | None:
    starts = [row["event_start"] for row in meetings[:2]]
    return meetings[0] if len(set(starts)) == len(starts) > 0 else None


def _only(rows: Iterable[Row]) -> Row | None:
    found = list(rows)
    return found[0] if len(found) == 1 else None
