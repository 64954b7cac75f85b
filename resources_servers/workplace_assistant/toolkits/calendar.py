"""Read, make, move and cancel the user's meetings."""

from __future__ import annotations

from typing import Any

from resources_servers.workplace_assistant.database import EVENT_COLUMNS, Database
from resources_servers.workplace_assistant.toolkits.arguments import (
    DAY_ENDS,
    Text,
    check_field,
    check_given,
    field_of,
    moment,
    page_of,
    row_of,
    words_of,
)


def get_event_information_by_id(database: Database, *, event_id: Text, field: Text) -> dict[str, str]:
    """Read one field of an event: event_id, event_name, participant_email, event_start or duration (minutes)."""
    return field_of(database.events, event_id, field)


def search_events(
    database: Database,
    *,
    query: Text = "",
    time_min: Text = "",
    time_max: Text = "",
    page: Text = "1",
    page_size: Text = "5",
) -> dict[str, Any]:
    """Search events, earliest first. Each word of the query must appear in the name or the participant's address.

    time_min and time_max (YYYY-MM-DD HH:MM:SS, or a day) bound the start. Returns one page; page counts from 1.
    """
    words = words_of(query)
    first = moment("time_min", time_min) if time_min else ""
    last = moment("time_max", time_max, DAY_ENDS) if time_max else ""
    found = [
        row
        for row in database.events
        if (not first or row["event_start"] >= first)
        and (not last or row["event_start"] <= last)
        and all(word in f"{row['event_name']} {row['participant_email']}".lower() for word in words)
    ]
    found.sort(key=lambda row: row["event_start"])
    return page_of("events", found, page, page_size)


def create_event(
    database: Database, *, event_name: Text, participant_email: Text, event_start: Text, duration: Text
) -> dict[str, str]:
    """Make an event with a participant. event_start is YYYY-MM-DD HH:MM:SS, duration a number of minutes."""
    check_given(event_name=event_name, participant_email=participant_email, event_start=event_start, duration=duration)
    return {"event_id": database.events.add(event_name, participant_email.lower(), event_start, duration)}


def delete_event(database: Database, *, event_id: Text) -> str:
    """Cancel an event."""
    row_of(database.events, event_id)
    database.events.delete(event_id)
    return "The event was deleted."


def update_event(database: Database, *, event_id: Text, field: Text, new_value: Text) -> str:
    """Change one field of an event: event_name, participant_email, event_start (YYYY-MM-DD HH:MM:SS) or duration."""
    row_of(database.events, event_id)
    check_field(field, EVENT_COLUMNS[1:])
    check_given(new_value=new_value)
    database.events.update(event_id, field, new_value.lower() if field == "participant_email" else new_value)
    return "The event was updated."


TOOLS = (get_event_information_by_id, search_events, create_event, delete_event, update_event)
