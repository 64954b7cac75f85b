"""Read, send, answer and delete emails in the user's mailbox."""

from __future__ import annotations

from typing import Any

from resources_servers.workplace_assistant.database import NOW, Database, Row
from resources_servers.workplace_assistant.toolkits.arguments import (
    DATE_LENGTH,
    Text,
    address,
    check_given,
    day_of,
    field_of,
    page_of,
    row_of,
    words_of,
)


def get_email_information_by_id(database: Database, *, email_id: Text, field: Text) -> dict[str, str]:
    """Read one field of an email: email_id, inbox/outbox, sender/recipient, subject, sent_datetime or body."""
    return field_of(database.emails, email_id, field)


def search_emails(
    database: Database,
    *,
    query: Text = "",
    date_min: Text = "",
    date_max: Text = "",
    page: Text = "1",
    page_size: Text = "5",
) -> dict[str, Any]:
    """Search emails, newest first. Each word of the query must appear in the address, the subject or the body.

    date_min and date_max (YYYY-MM-DD) are the first and the last day. Returns one page; page counts from 1.
    """
    words = words_of(query)
    first = day_of("date_min", date_min) if date_min else ""
    last = day_of("date_max", date_max) if date_max else ""
    found = [
        row
        for row in database.emails
        if (not first or row["sent_datetime"][:DATE_LENGTH] >= first)
        and (not last or row["sent_datetime"][:DATE_LENGTH] <= last)
        and _mentions(row, words)
    ]
    found.sort(key=lambda row: row["sent_datetime"], reverse=True)
    return page_of("emails", found, page, page_size)


def send_email(database: Database, *, recipient: Text, subject: Text, body: Text) -> str:
    """Send an email to an address."""
    check_given(recipient=recipient, subject=subject, body=body)
    _send(database, recipient, subject, body)
    return "The email was sent."


def delete_email(database: Database, *, email_id: Text) -> str:
    """Delete an email."""
    row_of(database.emails, email_id)
    database.emails.delete(email_id)
    return "The email was deleted."


def forward_email(database: Database, *, email_id: Text, recipient: Text) -> str:
    """Forward an email to an address."""
    email = row_of(database.emails, email_id)
    _send(database, recipient, f"FW: {email['subject']}", email["body"])
    return "The email was forwarded."


def reply_email(database: Database, *, email_id: Text, body: Text) -> str:
    """Answer an email: the body goes to its sender, under its subject."""
    email = row_of(database.emails, email_id)
    check_given(body=body)
    _send(database, email["sender/recipient"], email["subject"], body)
    return "The reply was sent."


def _send(database: Database, recipient: str, subject: str, body: str) -> None:
    database.emails.add("outbox", address("recipient", recipient), subject, NOW, body)


def _mentions(row: Row, words: set[str]) -> bool:
    if not words:
        return True
    text = f"{row['sender/recipient']} {row['subject']} {row['body']}".lower()
    return all(word in text for word in words)


TOOLS = (get_email_information_by_id, search_emails, send_email, delete_email, forward_email, reply_email)
