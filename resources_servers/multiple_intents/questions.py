"""Questions about meetings, tasks, customers, emails and visits."""

from __future__ import annotations

from collections.abc import Callable

from resources_servers.multiple_intents.lookups import (
    called,
    customer_called,
    customers_of,
    day_of,
    emails_from,
    first_meeting_on,
    meetings_on,
    named_task,
    next_meeting_with,
    said,
    tasks_of,
)
from resources_servers.multiple_intents.wishes import Answer, Question, count
from resources_servers.workplace_assistant.database import Database, Row
from resources_servers.workplace_assistant.errands import Draw
from resources_servers.workplace_assistant.toolkits.customer_relationship_manager import STATUSES
from resources_servers.workplace_assistant.toolkits.project_management import LISTS


def meetings_of_day(day: str, spoken: str = "") -> Question:
    text = f"tell me how many meetings I have on {spoken or said(day)}"
    return count(text, "meetings", lambda database: len(meetings_on(database, day)))


def minutes_of_day(day: str, spoken: str = "") -> Question:
    text = f"tell me how many minutes of meetings I have on {spoken or said(day)}"
    return count(text, "minutes", lambda database: sum(int(row["duration"]) for row in meetings_on(database, day)))


def first_person_of_day(day: str) -> Question:
    def answer(database: Database) -> Answer | None:
        meeting = first_meeting_on(database, day)
        return Answer("person", meeting["participant_email"]) if meeting else None

    return Question(f"tell me who my first meeting on {said(day)} is with", answer)


def last_start_of_day(day: str) -> Question:
    def answer(database: Database) -> Answer | None:
        meetings = meetings_on(database, day)
        return Answer("time", meetings[-1]["event_start"][11:16]) if meetings else None

    return Question(f"tell me at what time my last meeting on {said(day)} starts", answer)


def day_of_next_meeting(email: str) -> Question:
    def answer(database: Database) -> Answer | None:
        meeting = next_meeting_with(database, email)
        return Answer("day", day_of(meeting)) if meeting else None

    return Question(f"tell me on which day my next meeting with {called(email)} is", answer)


def seller_of(name: str) -> Question:
    def answer(database: Database) -> Answer | None:
        customer = customer_called(database, name)
        return Answer("person", customer["assigned_to_email"]) if customer else None

    return Question(f"tell me who our customer {name} is assigned to", answer)


def follow_up_day_of(name: str) -> Question:
    def answer(database: Database) -> Answer | None:
        customer = customer_called(database, name)
        return Answer("day", customer["follow_up_by"]) if customer else None

    return Question(f"tell me by which day we have to follow up with our customer {name}", answer)


def customers_with_status(seller: str, status: str) -> Question:
    text = f"tell me how many of {called(seller)}'s customers have the status '{status}'"
    return count(text, "customers", lambda database: len(customers_of(database, seller, status)))


def tasks_in_list(member: str, list_name: str) -> Question:
    text = f"tell me how many tasks {called(member)} has in the list '{list_name}'"
    return count(text, "tasks", lambda database: len(tasks_of(database, member, list_name)))


def due_day_of(task: Row) -> Question:
    name, member = task["task_name"], task["assigned_to_email"]

    def answer(database: Database) -> Answer | None:
        found = named_task(database, name, member)
        return Answer("day", found["due_date"]) if found else None

    return Question(f"tell me when {called(member)}'s task '{name}' is due", answer)


def day_of_latest_email(sender: str) -> Question:
    def answer(database: Database) -> Answer | None:
        emails = emails_from(database, sender)
        return Answer("day", emails[0]["sent_datetime"][:10]) if emails else None

    return Question(f"tell me on which day the latest email from {called(sender)} came in", answer)


def visits_on(day: str) -> Question:
    text = f"tell me how many visits our web site had on {said(day)}"
    return count(text, "visits", lambda database: _visits(database, day))


def _visits(database: Database, day: str) -> int:
    return sum(visit["date_of_visit"] == day for visit in database.company.visits)


QUESTIONS: tuple[Callable[[Draw], Question], ...] = (
    lambda draw: meetings_of_day(draw.working_day().isoformat()),
    lambda draw: minutes_of_day(draw.working_day().isoformat()),
    lambda draw: first_person_of_day(draw.working_day().isoformat()),
    lambda draw: last_start_of_day(draw.working_day().isoformat()),
    lambda draw: day_of_next_meeting(draw.colleague()),
    lambda draw: seller_of(_customer(draw)["customer_name"]),
    lambda draw: follow_up_day_of(_customer(draw)["customer_name"]),
    lambda draw: customers_with_status(draw.seller(), draw.one(STATUSES)),
    lambda draw: tasks_in_list(draw.member(), draw.one(LISTS)),
    lambda draw: due_day_of(draw.one(list(draw.company.tasks.rows.values()))),
    lambda draw: day_of_latest_email(draw.colleague()),
    lambda draw: visits_on(draw.one(draw.company.visits)["date_of_visit"]),
)
"""Functions that each draw a question of one kind."""


def _customer(draw: Draw) -> Row:
    return draw.one(list(draw.company.customers.rows.values()))
