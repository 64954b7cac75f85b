"""The tables of a company. All rollouts share the initial state, and each rollout stores its own changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

Row = Mapping[str, str]

TODAY = "2023-11-30"
YESTERDAY = "2023-11-29"
NOW = f"{TODAY} 00:00:00"
ID_DIGITS = 8

EMAIL_COLUMNS = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
EVENT_COLUMNS = ("event_id", "event_name", "participant_email", "event_start", "duration")
TASK_COLUMNS = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
CUSTOMER_COLUMNS = (
    "customer_id", "assigned_to_email", "customer_name", "customer_email", "customer_phone", "last_contact_date",
    "product_interest", "status", "follow_up_by", "notes",
)  # fmt: skip
VISIT_COLUMNS = (
    "date_of_visit", "visitor_id", "page_views", "session_duration_seconds", "traffic_source", "user_engaged",
)  # fmt: skip


@dataclass(frozen=True)
class StartTable:
    """An immutable initial table with its rows by id. The first column is the id."""

    columns: tuple[str, ...]
    rows: dict[str, Row]

    @classmethod
    def of(cls, columns: tuple[str, ...], rows: Iterable[Row]) -> StartTable:
        return cls(columns, {row[columns[0]]: row for row in rows})

    @cached_property
    def next_number(self) -> int:
        """The id of the next added row, as a number."""
        return 1 + max(map(int, self.rows), default=-1)

    def values(self, column: str) -> set[str]:
        return {row[column] for row in self.rows.values()}


@dataclass(frozen=True)
class Company:
    """The initial data of a company, with which a rollout starts."""

    emails: StartTable
    events: StartTable
    tasks: StartTable
    customers: StartTable
    visits: tuple[Row, ...]
    """Visits to the web site. A visitor can have several visits."""
    addresses: tuple[str, ...]
    """The directory of all colleagues' addresses."""


class Changes(NamedTuple):
    """The differences from the initial table, in a form that can be compared between attempts. Case is ignored."""

    known: dict[str, Row | None]
    """The changed initial rows, by id. Deleted rows are None."""
    added: Counter[tuple[str, ...]]
    """The added rows without their ids, because the ids depend on the order of the calls."""


class Table:
    """One rollout's table, copied from the shared initial table on the first change."""

    def __init__(self, start: StartTable) -> None:
        self.start = start
        self._rows = start.rows
        self._next_number = start.next_number

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def get(self, row_id: str) -> Row | None:
        return self._rows.get(row_id)

    def add(self, *values: str) -> str:
        """Append a row and return its new id. `values` are the values of all columns except the id, in order."""
        # Do not reuse ids, because an added row must not be mistaken for an initial row.
        row_id = str(self._next_number).zfill(ID_DIGITS)
        self._next_number += 1
        self._own_rows()[row_id] = dict(zip(self.start.columns, (row_id, *values), strict=True))
        return row_id

    def update(self, row_id: str, column: str, value: str) -> None:
        self._own_rows()[row_id] = {**self._rows[row_id], column: value}

    def delete(self, row_id: str) -> None:
        del self._own_rows()[row_id]

    def changes(self) -> Changes:
        """Return the differences from the initial table. Case is ignored."""
        if self._rows is self.start.rows:
            return Changes({}, Counter())
        known: dict[str, Row | None] = {}
        for row_id, before in self.start.rows.items():
            now = self._rows.get(row_id)
            if now is before:
                continue
            if now is None:
                known[row_id] = None
            elif _folded(now) != _folded(before):
                known[row_id] = _folded(now)
        fresh = [row for row_id, row in self._rows.items() if row_id not in self.start.rows]
        return Changes(known, Counter(tuple(_folded(row).values())[1:] for row in fresh))

    def _own_rows(self) -> dict[str, Row]:
        if self._rows is self.start.rows:
            self._rows = dict(self._rows)
        return self._rows


class Database:
    """The tables of one rollout."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.emails = Table(company.emails)
        self.events = Table(company.events)
        self.tasks = Table(company.tasks)
        self.customers = Table(company.customers)
        self.plots: list[str] = []
        """The file names of the created plots."""


def _folded(row: Row) -> dict[str, str]:
    return {column: value.casefold() for column, value in row.items()}
