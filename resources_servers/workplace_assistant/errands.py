"""Draw errands in a company. An errand is a request with the calls that fulfil it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from random import Random
from typing import NamedTuple, TypeVar

from resources_servers.workplace_assistant.company import MEETINGS, PARTS, WORK
from resources_servers.workplace_assistant.database import NOW, TODAY, Company, Row
from resources_servers.workplace_assistant.toolkits.analytics import PLOT_TYPES
from resources_servers.workplace_assistant.toolkits.customer_relationship_manager import PRODUCTS, STATUSES
from resources_servers.workplace_assistant.toolkits.project_management import BOARDS, LISTS

MOST_CALLS = 8
NOTES = (
    "Thank you, that helps.",
    "I will look at it tomorrow.",
    "Please go ahead.",
    "Can we talk about it on Monday?",
)

T = TypeVar("T")


class Call(NamedTuple):
    name: str
    arguments: dict[str, str]


class Errand(NamedTuple):
    """A request, and the tool calls that fulfil it."""

    category: str
    request: str
    calls: list[Call]


class Draw:
    """A source of random choices in a company."""

    def __init__(self, company: Company, random: Random) -> None:
        self.company = company
        self.random = random

    def one(self, of: Sequence[T]) -> T:
        return of[self.random.randrange(len(of))]

    def colleague(self) -> str:
        """Draw a colleague's address."""
        return self.one(self.company.addresses)

    def member(self) -> str:
        """Draw the address of a colleague to whom tasks are assigned."""
        return self.one(sorted(self.company.tasks.values("assigned_to_email")))

    def seller(self) -> str:
        """Draw the address of a colleague to whom customers are assigned."""
        return self.one(sorted(self.company.customers.values("assigned_to_email")))

    def working_day(self) -> date:
        """Draw a working day within the next 15 days."""
        days = [date.fromisoformat(TODAY) + timedelta(days=number) for number in range(1, 16)]
        return self.one([day for day in days if day.weekday() < 5])

    def meetings_on(self, day: date) -> list[Row]:
        """Return a day's meetings, earliest first."""
        found = [row for row in self.company.events.rows.values() if row["event_start"].startswith(day.isoformat())]
        return sorted(found, key=lambda row: row["event_start"])

    def meetings_with(self, email: str, first: str, last: str = "9999") -> list[Row]:
        """Return a colleague's meetings that start between two times, earliest first."""
        found = [
            row
            for row in self.company.events.rows.values()
            if row["participant_email"] == email and first <= row["event_start"] <= last
        ]
        return sorted(found, key=lambda row: row["event_start"])

    def received(self) -> list[Row]:
        """Return the emails of the inbox, newest first."""
        found = [row for row in self.company.emails.rows.values() if row["inbox/outbox"] == "inbox"]
        return sorted(found, key=lambda row: row["sent_datetime"], reverse=True)


Maker = Callable[[Draw], Errand | None]
"""A function that draws an errand of one kind. It returns None if the drawn errand does not make sense."""


def delete_last_email(draw: Draw) -> Errand | None:
    """Draw an errand to delete the newest email from a colleague."""
    sender = draw.colleague()
    email = next((row for row in draw.received() if row["sender/recipient"] == sender), None)
    request = draw.one(["Delete the last email I got from {}.", "{}'s latest email can go. Please delete it."])
    if email is None:
        return None
    return Errand(
        "email", request.format(_called(sender)), [Call("email_delete_email", {"email_id": email["email_id"]})]
    )


def forward_email(draw: Draw) -> Errand | None:
    """Draw an errand to forward the newest email with a certain subject to one or two colleagues."""
    email, readers = draw.one(draw.received()), sorted({draw.colleague(), draw.colleague()})
    newest = next(row for row in draw.received() if row["subject"] == email["subject"])
    names = " and ".join(map(_called, readers))
    return Errand(
        "email",
        f"Forward the latest email in my inbox with the subject '{email['subject']}' to {names}.",
        [Call("email_forward_email", {"email_id": newest["email_id"], "recipient": each}) for each in readers],
    )


def answer_email(draw: Draw) -> Errand | None:
    sender, text = draw.colleague(), draw.one(NOTES)
    email = next((row for row in draw.received() if row["sender/recipient"] == sender), None)
    if email is None:
        return None
    return Errand(
        "email",
        f"Answer the most recent email from {_called(sender)} with '{text}'",
        [Call("email_reply_email", {"email_id": email["email_id"], "body": text})],
    )


def delete_recent_emails(draw: Draw) -> Errand | None:
    """Draw an errand to delete the emails that a colleague has sent since a certain day."""
    sender, day = draw.colleague(), date.fromisoformat(TODAY) - timedelta(days=draw.random.randrange(2, 15))
    emails = [
        row for row in draw.received() if row["sender/recipient"] == sender and row["sent_datetime"] >= day.isoformat()
    ]
    return Errand(
        "email",
        f"Delete every email that {_called(sender)} has sent me since {_said(day)}, that day included.",
        [Call("email_delete_email", {"email_id": row["email_id"]}) for row in emails],
    )


def cancel_next_meeting(draw: Draw) -> Errand | None:
    person = draw.colleague()
    meetings = draw.meetings_with(person, NOW)[:1]
    request = draw.one(["Cancel my next meeting with {}.", "{} is ill. Please cancel our next meeting."])
    return Errand("calendar", request.format(_called(person)), [_cancelled(row) for row in meetings])


def clear_a_day(draw: Draw) -> Errand | None:
    """Draw an errand to cancel a day's meetings that start before noon, or those that start at noon or later."""
    day = draw.working_day()
    half = draw.one(["before", "after"])
    meetings = [row for row in draw.meetings_on(day) if (row["event_start"] < f"{day} 12:00:00") == (half == "before")]
    verb = "start before noon" if half == "before" else "start at noon or later"
    request = f"I am away on {_said(day)}. Cancel all meetings of that day that {verb}."
    return Errand("calendar", request, [_cancelled(row) for row in meetings])


def rename_meeting(draw: Draw) -> Errand | None:
    """Draw an errand to rename the first or the last meeting of a day."""
    day, name = draw.working_day(), draw.one(MEETINGS)
    meetings, place = draw.meetings_on(day), draw.one(["first", "last"])
    if not meetings:
        return None
    meeting = meetings[0 if place == "first" else -1]
    if meeting["event_name"] == name:
        return None
    return Errand(
        "calendar",
        f"Rename my {place} meeting on {_said(day)} to '{name}'.",
        [_changed(meeting, "event_name", name)],
    )


def push_back_meeting(draw: Draw) -> Errand | None:
    """Draw an errand to postpone the first meeting of a day."""
    meetings, minutes = draw.meetings_on(draw.working_day()), draw.one([30, 60, 90])
    if not meetings:
        return None
    start = datetime.fromisoformat(meetings[0]["event_start"])
    later = str(start + timedelta(minutes=minutes))
    return Errand(
        "calendar",
        f"Push my first meeting on {_said(start)} back by {minutes} minutes.",
        [_changed(meetings[0], "event_start", later)],
    )


def meet_if_overdue(draw: Draw) -> Errand | None:
    """Draw an errand to meet a colleague tomorrow if the last meeting with them is too long ago."""
    person, days = draw.colleague(), draw.random.randrange(5, 25)
    first = date.fromisoformat(TODAY) - timedelta(days=days)
    calls = []
    if not draw.meetings_with(person, first.isoformat(), NOW):
        arguments = {
            "event_name": "catch-up",
            "participant_email": person,
            "event_start": _free_half_hour(draw, date.fromisoformat(TODAY) + timedelta(days=1)),
            "duration": "30",
        }
        calls = [Call("calendar_create_event", arguments)]
    return Errand(
        "calendar",
        f"If I have had no meeting with {_called(person)} from {_said(first)} until yesterday, make one of 30 minutes "
        "called 'catch-up' in my first free half hour of tomorrow.",
        calls,
    )


def plot_visits(draw: Draw) -> Errand | None:
    """Draw an errand to plot the visits of the web site for a range of days."""
    first = date(2023, 9, 1) + timedelta(days=draw.random.randrange(60))
    last = first + timedelta(days=draw.random.randrange(5, 25))
    said, value = draw.one([("all visits", "total_visits"), ("visits of engaged users", "user_engaged")])
    kind = draw.one(PLOT_TYPES)
    arguments = {"time_min": str(first), "time_max": str(last), "value_to_plot": value, "plot_type": kind}
    return Errand(
        "analytics",
        f"Make a {kind} plot of {said} of our web site from {_said(first)} to {_said(last)}.",
        [Call("analytics_create_plot", arguments)],
    )


def make_task(draw: Draw) -> Errand | None:
    """Draw an errand to create a task in the backlog of a board."""
    member, board, due = draw.member(), draw.one(BOARDS), draw.working_day()
    name = f"{draw.one(WORK[board])} {draw.one(PARTS)}"
    arguments = {
        "task_name": name,
        "assigned_to_email": member,
        "list_name": "Backlog",
        "due_date": str(due),
        "board": board,
    }
    return Errand(
        "project_management",
        f"Put a task '{name}' for {_called(member)} on the {board} board, in the backlog and due on {_said(due)}.",
        [Call("project_management_create_task", arguments)],
    )


def hand_over_tasks(draw: Draw) -> Errand | None:
    """Draw an errand to reassign a member's tasks in one list of a board."""
    giver, taker, board, list_name = draw.member(), draw.member(), draw.one(BOARDS), draw.one(LISTS)
    tasks = [row for row in _tasks_of(draw, giver) if (row["board"], row["list_name"]) == (board, list_name)]
    if giver == taker:
        return None
    return Errand(
        "project_management",
        f"Give all tasks of {_called(giver)} in the list '{list_name}' of the {board} board to {_called(taker)}.",
        [_task_changed(row, "assigned_to_email", taker) for row in tasks],
    )


def review_overdue_tasks(draw: Draw) -> Errand | None:
    """Draw an errand to move a member's overdue tasks from `In Progress` to `In Review`."""
    member = draw.member()
    tasks = [row for row in _tasks_of(draw, member) if row["list_name"] == "In Progress" and row["due_date"] < TODAY]
    return Errand(
        "project_management",
        f"Whatever {_called(member)} has in progress that was due before today goes to 'In Review'.",
        [_task_changed(row, "list_name", "In Review") for row in tasks],
    )


def hand_over_customers(draw: Draw) -> Errand | None:
    """Draw an errand to reassign a seller's customers with a certain status and interest."""
    giver, taker, status, product = draw.seller(), draw.seller(), draw.one(STATUSES), draw.one(PRODUCTS)
    customers = [
        row
        for row in draw.company.customers.rows.values()
        if (row["assigned_to_email"], row["status"], row["product_interest"]) == (giver, status, product)
    ]
    if giver == taker:
        return None
    return Errand(
        "customer_relationship_manager",
        f"{_called(taker)} takes over all customers of {_called(giver)} with the status '{status}' who are interested "
        f"in {product.lower()}.",
        [_customer_changed(row, "assigned_to_email", taker) for row in customers],
    )


def set_status(draw: Draw) -> Errand | None:
    customer, status = draw.one(list(draw.company.customers.rows.values())), draw.one(STATUSES)
    if customer["status"] == status:
        return None
    return Errand(
        "customer_relationship_manager",
        f"Set the status of our customer {customer['customer_name']} to '{status}'.",
        [_customer_changed(customer, "status", status)],
    )


def remove_customer(draw: Draw) -> Errand | None:
    """Draw an errand to delete a customer and to notify the assigned seller by email."""
    customer = draw.one(list(draw.company.customers.rows.values()))
    name, seller = customer["customer_name"], customer["assigned_to_email"]
    text = f"{name} is no customer of ours any more."
    return Errand(
        "multi_domain",
        f"Delete the customer {name}, and send whoever the customer was assigned to an email with the subject "
        f"'Customer deleted' and the text '{text}'",
        [
            Call("customer_relationship_manager_delete_customer", {"customer_id": customer["customer_id"]}),
            Call("email_send_email", {"recipient": seller, "subject": "Customer deleted", "body": text}),
        ],
    )


def replace_meeting(draw: Draw) -> Errand | None:
    person, text = draw.colleague(), draw.one(NOTES)
    meetings = draw.meetings_with(person, NOW)
    if not meetings:
        return None
    subject = meetings[0]["event_name"]
    return Errand(
        "multi_domain",
        f"Cancel my next meeting with {_called(person)}, and send them an email with the meeting's name as its "
        f"subject and the text '{text}'",
        [
            _cancelled(meetings[0]),
            Call("email_send_email", {"recipient": person, "subject": subject, "body": text}),
        ],
    )


MAKERS: tuple[Maker, ...] = (
    delete_last_email, forward_email, answer_email, delete_recent_emails, cancel_next_meeting, clear_a_day,
    rename_meeting, push_back_meeting, meet_if_overdue, plot_visits, make_task, hand_over_tasks, review_overdue_tasks,
    hand_over_customers, set_status, remove_customer, replace_meeting,
)  # fmt: skip


def errands(company: Company, seed: int) -> Iterator[Errand]:
    """Yield an endless stream of errands of all kinds in turn. The same seed gives the same errands.

    An errand may occur more than once.
    """
    draw = Draw(company, Random(seed))
    while True:
        for maker in MAKERS:
            errand = maker(draw)
            if errand is not None and len(errand.calls) <= MOST_CALLS:
                yield errand


def _cancelled(meeting: Row) -> Call:
    return Call("calendar_delete_event", {"event_id": meeting["event_id"]})


def _changed(meeting: Row, field: str, value: str) -> Call:
    return Call("calendar_update_event", {"event_id": meeting["event_id"], "field": field, "new_value": value})


def _task_changed(task: Row, field: str, value: str) -> Call:
    return Call("project_management_update_task", {"task_id": task["task_id"], "field": field, "new_value": value})


def _customer_changed(customer: Row, field: str, value: str) -> Call:
    arguments = {"customer_id": customer["customer_id"], "field": field, "new_value": value}
    return Call("customer_relationship_manager_update_customer", arguments)


def _tasks_of(draw: Draw, member: str) -> list[Row]:
    return [row for row in draw.company.tasks.rows.values() if row["assigned_to_email"] == member]


def _free_half_hour(draw: Draw, day: date) -> str:
    """Return the start of a day's first free half hour, at 9:00 at the earliest."""
    free = datetime(day.year, day.month, day.day, 9)
    for meeting in draw.meetings_on(day):
        start = datetime.fromisoformat(meeting["event_start"])
        if start >= free + timedelta(minutes=30):
            break
        free = start + timedelta(minutes=int(meeting["duration"]))
    return str(free)


def _called(email: str) -> str:
    return email.split(".", maxsplit=1)[0].capitalize()


def _said(day: date) -> str:
    return f"{day:%B} {day.day}"
