"""A fictional company that is generated from a seed. It has the same tables as WorkBench, but other people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from heapq import nsmallest
from random import Random
from typing import TypeVar

from resources_servers.workplace_assistant.database import (
    CUSTOMER_COLUMNS,
    EMAIL_COLUMNS,
    EVENT_COLUMNS,
    ID_DIGITS,
    TASK_COLUMNS,
    TODAY,
    VISIT_COLUMNS,
    Company,
    Row,
    StartTable,
)
from resources_servers.workplace_assistant.toolkits.customer_relationship_manager import PRODUCTS, STATUSES
from resources_servers.workplace_assistant.toolkits.project_management import BOARDS, LISTS

SEED = 0
MOST_KEPT = 64
"""Maximum number of cached companies. A company takes up about 1.3 MB and is generated in about 20 ms."""
EMAILS, EVENTS, TASKS, CUSTOMERS, VISITS = 500, 300, 300, 200, 1000
DOMAIN = "brightharbor.example"

COLLEAGUES = (
    "abena.owusu", "bruno.keller", "celine.dubois", "diego.fuentes", "elif.yildiz", "farid.rahimi", "greta.lindqvist",
    "hana.novak", "ivo.marinov", "joana.ribeiro", "keiko.mori", "lars.henriksen", "mei.zhou", "nuno.carvalho",
    "oona.virtanen", "pavel.horak", "qiang.liu", "rosa.bianchi", "stefan.vogel", "tala.haddad",
)  # fmt: skip
TEAM, SALES = COLLEAGUES[:15], COLLEAGUES[15:]

MEETINGS = (
    "budget check", "design critique", "harbor tour planning", "hiring round", "incident review", "knowledge hour",
    "launch rehearsal", "market outlook", "office move planning", "partner call", "planning poker", "price review",
    "quarter kick-off", "release planning", "risk round", "roadmap talk", "security drill", "sprint review",
    "supplier talk", "support handover", "team lunch", "training session", "usability test", "weekly check-in",
)  # fmt: skip
WORK = {
    "Back end": ("Speed up", "Write tests for", "Clean up", "Document", "Add logging to"),
    "Front end": ("Rebuild", "Fix the layout of", "Translate", "Add keyboard control to", "Measure"),
    "Design": ("Sketch", "Draw icons for", "Choose colors for", "Prototype", "Polish"),
}
PARTS = ("the checkout", "the search page", "the login", "the price list", "the newsletter", "the order history")
LINES = (
    "I have looked at it and would like to hear what you think.",
    "It is done. Tell me if anything is missing.",
    "I am stuck and could use half an hour of your time.",
    "It will take two days longer than planned.",
    "Could you send me the latest figures?",
    "Thank you for your notes, they helped a lot.",
)
GREETINGS, GOODBYES = ("Hi Sam", "Dear Sam", "Sam"), ("Best", "Many thanks", "See you", "Regards")

FIRST_NAMES = ("Ada", "Basil", "Clara", "Dorian", "Edith", "Felix", "Gloria", "Hugo", "Iris", "Jonas")
LAST_NAMES = (
    "Abbott", "Barlow", "Crane", "Draper", "Ellery", "Fenwick", "Garland", "Hollis", "Ingram", "Jarvis", "Kendal",
    "Lowell", "Mercer", "Norwood", "Oakley", "Prescott", "Quincy", "Rowley", "Sutton", "Thorne", "Upton", "Vance",
)  # fmt: skip
FIRMS = ("northmill", "quietriver", "redbrick", "silverfern", "stonebridge", "tallship", "westgate", "wildoak")
CONTACTS = ("Wrote an offer.", "Met at the fair.", "Talked on the phone.", "Showed the product.", "Asked to wait.")
SOURCES = ("direct", "direct", "direct", "social media", "social media", "search engine", "referral")

FIRST_DAY, LAST_MEETING_DAY = date(2023, 8, 1), date(2023, 12, 22)
DAY_STARTS_MIN, DAY_ENDS_MIN = 9 * 60, 18 * 60

T = TypeVar("T")


@lru_cache(maxsize=MOST_KEPT)
def made_up_company(seed: int = SEED) -> Company:
    """Generate a company from a seed. The same seed always gives the same company."""
    random = Random(seed)
    return Company(
        emails=_with_ids(random, EMAIL_COLUMNS, _emails(random)),
        events=_with_ids(random, EVENT_COLUMNS, _events(random)),
        tasks=_with_ids(random, TASK_COLUMNS, _tasks(random)),
        customers=_with_ids(random, CUSTOMER_COLUMNS, _customers(random)),
        visits=tuple(_visits(random)),
        addresses=tuple(address_of(name) for name in COLLEAGUES),
    )


def address_of(name: str) -> str:
    return f"{name}@{DOMAIN}"


def _with_ids(random: Random, columns: tuple[str, ...], rows: Iterator[Sequence[str]]) -> StartTable:
    """Add ids in random order to the rows, and return them as a table."""
    values = list(rows)
    numbers = _shuffled(random, range(len(values)))
    ids = [str(number).zfill(ID_DIGITS) for number in numbers]
    return StartTable.of(
        columns, (dict(zip(columns, (row_id, *row), strict=True)) for row_id, row in zip(ids, values, strict=True))
    )


def _emails(random: Random) -> Iterator[Sequence[str]]:
    today = datetime.fromisoformat(TODAY)
    # Sample distinct minutes, so that no two emails have the same time.
    for minutes in sorted(_sample(random, range(1, 60 * 24 * 60), EMAILS), reverse=True):
        name = _one(random, COLLEAGUES)
        is_about_work = random.random() < 0.5
        about = f"{_one(random, WORK[_one(random, BOARDS)])} {_one(random, PARTS)}"
        subject = f"Task update: {about}" if is_about_work else f"About the {_one(random, MEETINGS)}"
        sent = today - timedelta(minutes=minutes, seconds=random.randrange(60))
        is_received = random.random() < 0.9
        greeting, goodbye = _one(random, GREETINGS), _one(random, GOODBYES)
        first_name = first_name_of(name)
        if not is_received:
            greeting, first_name = f"Hi {first_name}", "Sam"
        body = f"{greeting},\n\n{_one(random, LINES)}\n\n{goodbye},\n{first_name}"
        yield "inbox" if is_received else "outbox", address_of(name), subject, f"{sent:%Y-%m-%d %H:%M:%S}", body


def _events(random: Random) -> Iterator[Sequence[str]]:
    """Yield meetings on working days. The meetings never overlap."""
    slots: list[tuple[datetime, int]] = []
    day = FIRST_DAY
    while day <= LAST_MEETING_DAY:
        if day.weekday() < 5:
            slots += _slots_of(random, day)
        day += timedelta(days=1)
    for start, duration in sorted(_sample(random, slots, EVENTS)):
        yield _one(random, MEETINGS), address_of(_one(random, COLLEAGUES)), f"{start:%Y-%m-%d %H:%M:%S}", str(duration)


def _slots_of(random: Random, day: date) -> Iterator[tuple[datetime, int]]:
    minute = DAY_STARTS_MIN + _one(random, (0, 30, 60))
    while True:
        duration = _one(random, (30, 60, 90, 120))
        if minute + duration > DAY_ENDS_MIN:
            return
        yield datetime(day.year, day.month, day.day, minute // 60, minute % 60), duration
        minute += duration + _one(random, (0, 30, 60, 90))


def _tasks(random: Random) -> Iterator[Sequence[str]]:
    days = [date(2023, 11, 27) + timedelta(days=number) for number in range(19)]
    working_days = [day.isoformat() for day in days if day.weekday() < 5]
    for due in sorted(_one(random, working_days) for _ in range(TASKS)):
        board = _one(random, BOARDS)
        name = f"{_one(random, WORK[board])} {_one(random, PARTS)}"
        # Make the lists plausible: most overdue tasks have left the backlog, and future tasks are not completed.
        list_name = _one(random, LISTS[1:] if due < TODAY and random.random() < 0.8 else LISTS[:2])
        yield name, address_of(_one(random, TEAM)), list_name, due, board


def _customers(random: Random) -> Iterator[Sequence[str]]:
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    for name in _sample(random, names, CUSTOMERS):
        email = f"{name.lower().replace(' ', '.')}@{_one(random, FIRMS)}.example"
        phone = f"555-{random.randrange(100, 1000)}-{random.randrange(1000, 10000)}" if random.random() < 0.5 else ""
        contact, follow_up = _day(random, -60, 0), _day(random, -30, 30)
        notes = f"{contact}: {_one(random, CONTACTS)}" if random.random() < 0.8 else ""
        product, status = _one(random, PRODUCTS), _one(random, STATUSES)
        yield address_of(_one(random, SALES)), name, email, phone, contact, product, status, follow_up, notes


def _visits(random: Random) -> Iterator[Row]:
    for day in sorted(_day(random, -90, -1) for _ in range(VISITS)):
        pages = 1 + random.randrange(5) * random.randrange(4)
        values = (
            day,
            str(random.randrange(10_000)).zfill(4),
            str(pages),
            str(pages * random.randrange(1, 20)),
            _one(random, SOURCES),
            str(random.random() < 0.5),
        )
        yield dict(zip(VISIT_COLUMNS, values, strict=True))


def first_name_of(name: str) -> str:
    """Return a colleague's capitalized first name."""
    return name.split(".", maxsplit=1)[0].capitalize()


def _day(random: Random, first: int, last: int) -> str:
    """Return a random day as YYYY-MM-DD. `first` and `last` are the limits, as numbers of days from today."""
    return (date.fromisoformat(TODAY) + timedelta(days=random.randrange(first, last + 1))).isoformat()


# Use only `random` and `randrange` of Random, because their results do not depend on Python's version.


def _one(random: Random, of: Sequence[T]) -> T:
    return of[random.randrange(len(of))]


def _shuffled(random: Random, values: Sequence[T]) -> list[T]:
    return _sample(random, values, len(values))


def _sample(random: Random, values: Sequence[T], count: int) -> list[T]:
    keys = [random.random() for _ in values]
    return [values[place] for place in nsmallest(count, range(len(values)), key=keys.__getitem__)]
