"""Wishes for the mailbox: send, answer and delete emails."""

from __future__ import annotations

from collections.abc import Callable

from resources_servers.multiple_intents.lookups import called, customer_called, emails_from, next_meeting_with
from resources_servers.multiple_intents.questions import day_of_latest_email
from resources_servers.multiple_intents.wishes import Wish
from resources_servers.workplace_assistant.company import MEETINGS
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.errands import NOTES, Call, Draw


def send(draw: Draw) -> Wish:
    person, text, subject = draw.colleague(), draw.one(NOTES), f"Our {draw.one(MEETINGS)}"
    return Wish(
        "add",
        f"send {called(person)} an email with the subject '{subject}' and the text '{text}'",
        f"the email to {called(person)}",
        lambda _: [_sent(person, subject, text)],
        can_be_undone=False,
    )


def send_to_seller(draw: Draw, name: str) -> Wish:
    """Return a wish to send an email to the colleague to whom a customer is assigned."""
    text, subject = draw.one(NOTES), f"Our customer {name}"

    def calls(database: Database) -> list[Call]:
        customer = customer_called(database, name)
        return [_sent(customer["assigned_to_email"], subject, text)] if customer else []

    return Wish(
        "add",
        f"send the colleague to whom our customer {name} is assigned an email with the subject '{subject}' and the "
        f"text '{text}'",
        f"the email about our customer {name}",
        calls,
        can_be_undone=False,
    )


def send_about_next(draw: Draw, person: str) -> Wish:
    """Return a wish to send an email whose subject is the name of the next meeting with a colleague."""
    text = draw.one(NOTES)

    def calls(database: Database) -> list[Call]:
        meeting = next_meeting_with(database, person)
        return [_sent(person, meeting["event_name"], text)] if meeting else []

    return Wish(
        "add",
        f"send {called(person)} an email whose subject is the name of my next meeting with them and whose text is "
        f"'{text}'",
        f"the email to {called(person)}",
        calls,
        can_be_undone=False,
    )


def answer_latest(person: str, text: str) -> Wish:
    def calls(database: Database) -> list[Call]:
        emails = emails_from(database, person)
        return [Call("email_reply_email", {"email_id": emails[0]["email_id"], "body": text})] if emails else []

    return Wish(
        "add",
        f"answer the latest email from {called(person)} with '{text}'",
        f"the answer to {called(person)}",
        calls,
        can_be_undone=False,
    )


def delete_latest(person: str) -> Wish:
    def calls(database: Database) -> list[Call]:
        emails = emails_from(database, person)
        return [Call("email_delete_email", {"email_id": emails[0]["email_id"]})] if emails else []

    return Wish(
        "cancel",
        f"delete the latest email from {called(person)}",
        f"the latest email from {called(person)}",
        calls,
        (day_of_latest_email(person),),
        can_be_undone=False,
    )


EMAIL_WISHES: tuple[Callable[[Draw], Wish | None], ...] = (
    send,
    lambda draw: answer_latest(draw.colleague(), draw.one(NOTES)),
    lambda draw: delete_latest(draw.colleague()),
)


def _sent(person: str, subject: str, text: str) -> Call:
    return Call("email_send_email", {"recipient": person, "subject": subject, "body": text})
