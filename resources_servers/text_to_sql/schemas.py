"""The schemas that questions are about, with functions that draw rows, and wordings for tables and columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym import shared_rows
from resources_servers.text_to_sql.asking import Column, Question, Table, literal

NAMES = tuple(row["given_name"] for row in shared_rows("names.jsonl"))
SUBJECTS = ("travel", "history", "nature", "poetry")
CHANNELS = ("counter", "post", "phone")
TARGETS = ("comet", "galaxy", "moon", "nebula", "planet")
INSTRUMENTS = ("cello", "drums", "flute", "harp", "piano")

Tables = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Schema:
    """A database schema, with a function that fills its tables."""

    name: str
    tables: str
    fill: Callable[[random.Random, Sequence[str]], Tables]
    about: tuple[Table, ...]
    """The tables and columns that questions are about, with their wordings."""
    ask_more: Callable[[random.Random, Sequence[str]], Question] | None = None
    """A function that draws additional kinds of questions. It receives the same cities as `fill`."""


def _fill_library(chance: random.Random, cities: Sequence[str]) -> Tables:
    titles = ("Tides", "The Last Kiln", "Moss", "Night Ferry", "Salt and Ink", "A Small Orchard", "Glass Roads")
    books = [(n, title, chance.choice(SUBJECTS), chance.randint(1970, 2020)) for n, title in enumerate(titles, 1)]
    members = [(n, name, chance.choice(cities)) for n, name in enumerate(chance.sample(NAMES, 6), 1)]
    loans = [
        (n, chance.randint(1, 7), chance.randint(1, 6), chance.randint(1, 40), int(chance.random() < 0.7))
        for n in range(1, 19)
    ]
    return {"book": books, "member": members, "loan": loans}


def _ask_library(chance: random.Random, cities: Sequence[str]) -> Question:
    days, year = chance.randint(5, 30), chance.choice((1985, 1995, 2005))
    subject, city = chance.choice(SUBJECTS), chance.choice(cities)
    return chance.choice(
        [
            Question(
                f"Which titles on {subject} were published after {year}? Order them by year, then by title.",
                f"SELECT title FROM book WHERE subject = '{subject}' AND year > {year} ORDER BY year, title",
            ),
            Question(
                "How many loans has each member had? Give the name and the number, members without a loan too.",
                "SELECT member.name, COUNT(loan.id) FROM member LEFT JOIN loan ON loan.member_id = member.id "
                "GROUP BY member.id",
            ),
            Question(
                f"Give the names of the members from {city} who have lent a book for more than {days} days.",
                "SELECT DISTINCT member.name FROM member JOIN loan ON loan.member_id = member.id "
                f"WHERE member.city = {literal(city)} AND loan.days > {days}",
            ),
            Question(
                "What is the average number of days of the loans that came back, for each subject?",
                "SELECT book.subject, AVG(loan.days) FROM loan JOIN book ON book.id = loan.book_id "
                "WHERE loan.is_back = 1 GROUP BY book.subject",
            ),
            Question(
                "Which titles have never been lent?",
                "SELECT title FROM book WHERE id NOT IN (SELECT book_id FROM loan)",
            ),
        ]
    )


def _fill_shop(chance: random.Random, cities: Sequence[str]) -> Tables:
    goods = ("kettle", "lamp", "ladder", "rope", "stool", "tray", "vase", "whistle")
    products = [(n, name, chance.randint(2, 90) * 50) for n, name in enumerate(goods, 1)]
    customers = [(n, name, chance.choice(cities)) for n, name in enumerate(chance.sample(NAMES, 7), 1)]
    orders = [
        (
            n,
            chance.randint(1, 7),
            f"2024-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
            chance.choice(CHANNELS),
        )
        for n in range(15)
    ]
    lines = [(n, n % 15, chance.randint(1, 8), chance.randint(1, 5)) for n in range(30)]
    return {"product": products, "customer": customers, "purchase": orders, "line": lines}


def _ask_shop(chance: random.Random, _cities: Sequence[str]) -> Question:
    cents, month, most = chance.randint(5, 60) * 50, chance.randint(2, 9), chance.randint(2, 4)
    return chance.choice(
        [
            Question(
                f"Which products cost more than {cents} cents? Give name and price, the dearest first, then by name.",
                f"SELECT name, cents FROM product WHERE cents > {cents} ORDER BY cents DESC, name",
            ),
            Question(
                "How many cents did each customer spend in all? Give name and sum; leave out who bought nothing.",
                "SELECT customer.name, SUM(line.quantity * product.cents) FROM customer "
                "JOIN purchase ON purchase.customer_id = customer.id JOIN line ON line.purchase_id = purchase.id "
                "JOIN product ON product.id = line.product_id GROUP BY customer.id",
            ),
            Question(
                f"How many purchases were made in or after month {month} of 2024?",
                f"SELECT COUNT(*) FROM purchase WHERE day >= '2024-{month:02}-01'",
            ),
            Question(
                f"Name the {most} products of which most pieces were sold, with the number of pieces, most first; "
                "of equal numbers, the first by name.",
                "SELECT product.name, SUM(line.quantity) AS pieces FROM product "
                "JOIN line ON line.product_id = product.id GROUP BY product.id "
                f"ORDER BY pieces DESC, product.name LIMIT {most}",
            ),
            Question(
                "From which cities are more than one of the customers?",
                "SELECT city FROM customer GROUP BY city HAVING COUNT(*) > 1",
            ),
        ]
    )


def _fill_ferry(chance: random.Random, cities: Sequence[str]) -> Tables:
    boats = [(n, name, chance.randint(4, 40) * 10) for n, name in enumerate(("Alca", "Brine", "Cormorant", "Dory"), 1)]
    trips = [
        (n, chance.randint(1, 4), *chance.sample(cities, 2), chance.randint(0, 60), chance.choice((None, *range(45))))
        for n in range(1, 25)
    ]
    return {"boat": boats, "trip": trips}


def _ask_ferry(chance: random.Random, cities: Sequence[str]) -> Question:
    city, late = chance.choice(cities), chance.randint(5, 30)
    return chance.choice(
        [
            Question(
                f"How many trips end in {city}?",
                f"SELECT COUNT(*) FROM trip WHERE arrives_in = {literal(city)}",
            ),
            Question(
                f"Which boats have made a trip more than {late} minutes late? Give each name once.",
                "SELECT DISTINCT boat.name FROM boat JOIN trip ON trip.boat_id = boat.id "
                f"WHERE trip.minutes_late > {late}",
            ),
            Question(
                "For each boat that sailed, give its name and the highest share of its seats that was taken, "
                "as a number from 0 to 1.",
                "SELECT boat.name, MAX(1.0 * trip.passengers / boat.seats) FROM boat "
                "JOIN trip ON trip.boat_id = boat.id GROUP BY boat.id",
            ),
            Question(
                "Of how many trips is it not known how late they were?",
                "SELECT COUNT(*) FROM trip WHERE minutes_late IS NULL",
            ),
            Question(
                f"Which trips from {city} had more passengers than the average trip? Give their ids, in order.",
                f"SELECT id FROM trip WHERE leaves_from = {literal(city)} "
                "AND passengers > (SELECT AVG(passengers) FROM trip) ORDER BY id",
            ),
        ]
    )


def _fill_observatory(chance: random.Random, cities: Sequence[str]) -> Tables:
    names = ("Lynx", "Heron", "Otter", "Wren", "Badger")
    telescopes = [(n, name, chance.choice(cities), chance.randint(4, 60) * 10) for n, name in enumerate(names, 1)]
    observers = [(n, name, chance.randint(1995, 2022)) for n, name in enumerate(chance.sample(NAMES, 6), 1)]
    nights = [
        (
            n, chance.randint(1, 5), chance.randint(1, 6), chance.choice(TARGETS), chance.randint(1, 12),
            chance.choice((None, *range(0, 101, 5))),
        )
        for n in range(1, 25)
    ]  # fmt: skip
    return {"telescope": telescopes, "observer": observers, "night": nights}


def _fill_school(chance: random.Random, cities: Sequence[str]) -> Tables:
    names = chance.sample(NAMES, 13)
    teachers = [(n, name, chance.choice(cities), chance.randint(24, 65)) for n, name in enumerate(names[:5], 1)]
    students = [(n, name, chance.choice(cities), chance.randint(16, 45)) for n, name in enumerate(names[5:], 1)]
    lessons = [
        (n, chance.randint(1, 5), chance.randint(1, 8), chance.choice(INSTRUMENTS), chance.randint(4, 18) * 5,
         chance.choice((None, *range(1, 11))))
        for n in range(1, 25)
    ]  # fmt: skip
    return {"teacher": teachers, "student": students, "lesson": lessons}


CITY = Column("city", "city")
BOOK = Table(
    "book",
    "books",
    "title",
    (Column("subject", "subject", SUBJECTS), Column("year", "year", range(1972, 2019), adds_up=False)),
)
MEMBER = Table("member", "members", "name", (CITY,))
LOAN = Table("loan", "loans", "id", (Column("days", "number of days", range(2, 40)),), (BOOK, MEMBER))

PRODUCT = Table("product", "products", "name", (Column("cents", "price in cents", range(150, 4500, 50)),))
CUSTOMER = Table("customer", "customers", "name", (CITY,))
PURCHASE = Table("purchase", "purchases", "id", (Column("channel", "channel", CHANNELS),), (CUSTOMER,))
LINE = Table("line", "lines", "id", (Column("quantity", "quantity", range(1, 6)),), (PURCHASE, PRODUCT))

BOAT = Table("boat", "boats", "name", (Column("seats", "number of seats", range(50, 400, 10)),))
TRIP = Table(
    "trip",
    "trips",
    "id",
    (
        Column("leaves_from", "place of departure"),
        Column("arrives_in", "place of arrival"),
        Column("passengers", "number of passengers", range(3, 60)),
        Column("minutes_late", "delay in minutes", range(2, 45), has_gaps=True),
    ),
    (BOAT,),
)

TELESCOPE = Table(
    "telescope", "telescopes", "name", (CITY, Column("mirror_cm", "mirror size in centimetres", range(50, 600, 10)))
)
OBSERVER = Table("observer", "observers", "name", (Column("since", "first year", range(1996, 2022), adds_up=False),))
NIGHT = Table(
    "night",
    "nights",
    "id",
    (
        Column("target", "target", TARGETS),
        Column("hours", "number of hours", range(1, 13)),
        Column("clouds", "cloud cover in percent", range(5, 100, 5), has_gaps=True, adds_up=False),
    ),
    (TELESCOPE, OBSERVER),
)

TEACHER = Table("teacher", "teachers", "name", (CITY, Column("age", "age", range(25, 65), adds_up=False)))
STUDENT = Table("student", "students", "name", (CITY, Column("age", "age", range(17, 45), adds_up=False)))
LESSON = Table(
    "lesson",
    "lessons",
    "id",
    (
        Column("instrument", "instrument", INSTRUMENTS),
        Column("minutes", "number of minutes", range(25, 90, 5)),
        Column("grade", "grade", range(2, 10), has_gaps=True, adds_up=False),
    ),
    (TEACHER, STUDENT),
)

SCHEMAS = (
    Schema(
        "library",
        "CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, subject TEXT, year INTEGER);\n"
        "CREATE TABLE member (id INTEGER PRIMARY KEY, name TEXT, city TEXT);\n"
        "CREATE TABLE loan (id INTEGER PRIMARY KEY, book_id INTEGER REFERENCES book (id), "
        "member_id INTEGER REFERENCES member (id), days INTEGER, is_back INTEGER);",
        _fill_library,
        (BOOK, MEMBER, LOAN),
        _ask_library,
    ),
    Schema(
        "shop",
        "CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT, cents INTEGER);\n"
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);\n"
        "CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id), day TEXT, "
        "channel TEXT);\n"
        "CREATE TABLE line (id INTEGER PRIMARY KEY, purchase_id INTEGER REFERENCES purchase (id), "
        "product_id INTEGER REFERENCES product (id), quantity INTEGER);",
        _fill_shop,
        (PRODUCT, CUSTOMER, PURCHASE, LINE),
        _ask_shop,
    ),
    Schema(
        "ferry",
        "CREATE TABLE boat (id INTEGER PRIMARY KEY, name TEXT, seats INTEGER);\n"
        "CREATE TABLE trip (id INTEGER PRIMARY KEY, boat_id INTEGER REFERENCES boat (id), leaves_from TEXT, "
        "arrives_in TEXT, passengers INTEGER, minutes_late INTEGER);",
        _fill_ferry,
        (BOAT, TRIP),
        _ask_ferry,
    ),
    Schema(
        "observatory",
        "CREATE TABLE telescope (id INTEGER PRIMARY KEY, name TEXT, city TEXT, mirror_cm INTEGER);\n"
        "CREATE TABLE observer (id INTEGER PRIMARY KEY, name TEXT, since INTEGER);\n"
        "CREATE TABLE night (id INTEGER PRIMARY KEY, telescope_id INTEGER REFERENCES telescope (id), "
        "observer_id INTEGER REFERENCES observer (id), target TEXT, hours INTEGER, clouds INTEGER);",
        _fill_observatory,
        (TELESCOPE, OBSERVER, NIGHT),
    ),
    Schema(
        "school",
        "CREATE TABLE teacher (id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER);\n"
        "CREATE TABLE student (id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER);\n"
        "CREATE TABLE lesson (id INTEGER PRIMARY KEY, teacher_id INTEGER REFERENCES teacher (id), "
        "student_id INTEGER REFERENCES student (id), instrument TEXT, minutes INTEGER, grade INTEGER);",
        _fill_school,
        (TEACHER, STUDENT, LESSON),
    ),
)
