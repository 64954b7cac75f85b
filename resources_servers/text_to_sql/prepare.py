r"""Generate questions about small databases, each with a reference query.

python resources_servers/text_to_sql/prepare.py --count 100 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

from nemo_gym import DataError, Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "Answer the question with one SQLite query, in a fenced block of SQL. Select what is asked for, no more."
TRIES = 1_000
"""Attempts per row, because questions with an empty result are discarded."""

CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
CITIES_PER_DATABASE = 6
"""Few enough that several persons share a city."""
NAMES = tuple(row["given_name"] for row in shared_rows("names.jsonl"))

Tables = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Question:
    """A question and its reference query."""

    text: str
    sql: str


@dataclass(frozen=True)
class Schema:
    """A database schema, with functions that fill its tables and draw questions about the same cities."""

    name: str
    tables: str
    fill: Callable[[random.Random, Sequence[str]], Tables]
    ask: Callable[[random.Random, Sequence[str]], Question]


def _fill_library(chance: random.Random, cities: Sequence[str]) -> Tables:
    titles = ("Tides", "The Last Kiln", "Moss", "Night Ferry", "Salt and Ink", "A Small Orchard", "Glass Roads")
    subjects = ("travel", "history", "nature", "poetry")
    books = [(n, title, chance.choice(subjects), chance.randint(1970, 2020)) for n, title in enumerate(titles, 1)]
    members = [(n, name, chance.choice(cities)) for n, name in enumerate(chance.sample(NAMES, 6), 1)]
    loans = [
        (n, chance.randint(1, 7), chance.randint(1, 6), chance.randint(1, 40), int(chance.random() < 0.7))
        for n in range(1, 19)
    ]
    return {"book": books, "member": members, "loan": loans}


def _ask_library(chance: random.Random, cities: Sequence[str]) -> Question:
    days, year = chance.randint(5, 30), chance.choice((1985, 1995, 2005))
    subject, city = chance.choice(("travel", "history", "nature", "poetry")), chance.choice(cities)
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
                f"WHERE member.city = {_literal(city)} AND loan.days > {days}",
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
        (n, chance.randint(1, 7), f"2024-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}") for n in range(15)
    ]
    lines = [(n % 15, product, chance.randint(1, 5)) for n in range(30) for product in [chance.randint(1, 8)]]
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
                f"SELECT COUNT(*) FROM trip WHERE arrives_in = {_literal(city)}",
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
                f"SELECT id FROM trip WHERE leaves_from = {_literal(city)} "
                "AND passengers > (SELECT AVG(passengers) FROM trip) ORDER BY id",
            ),
        ]
    )


SCHEMAS = (
    Schema(
        "library",
        "CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, subject TEXT, year INTEGER);\n"
        "CREATE TABLE member (id INTEGER PRIMARY KEY, name TEXT, city TEXT);\n"
        "CREATE TABLE loan (id INTEGER PRIMARY KEY, book_id INTEGER REFERENCES book (id), "
        "member_id INTEGER REFERENCES member (id), days INTEGER, is_back INTEGER);",
        _fill_library,
        _ask_library,
    ),
    Schema(
        "shop",
        "CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT, cents INTEGER);\n"
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);\n"
        "CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id), day TEXT);\n"
        "CREATE TABLE line (purchase_id INTEGER REFERENCES purchase (id), "
        "product_id INTEGER REFERENCES product (id), quantity INTEGER);",
        _fill_shop,
        _ask_shop,
    ),
    Schema(
        "ferry",
        "CREATE TABLE boat (id INTEGER PRIMARY KEY, name TEXT, seats INTEGER);\n"
        "CREATE TABLE trip (id INTEGER PRIMARY KEY, boat_id INTEGER REFERENCES boat (id), leaves_from TEXT, "
        "arrives_in TEXT, passengers INTEGER, minutes_late INTEGER);",
        _fill_ferry,
        _ask_ferry,
    ),
)


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return the output path. The same seed gives the same rows.

    Raises `DataError` if there are fewer than `count` different questions.
    """
    write_rows(output, split_rows(_rows(random.Random(seed)), split, count, key=itemgetter("uuid")))
    return output


def _rows(chance: random.Random) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for number, schema in enumerate(cycle(SCHEMAS)):
        row = _new_row(schema, chance, seen)
        if row is None:
            raise DataError(f"count: only {number} different questions found. Use a smaller count.")
        yield row


def _new_row(schema: Schema, chance: random.Random, seen: set[str]) -> dict[str, Any] | None:
    for _ in range(TRIES):
        cities = chance.sample(CITIES, CITIES_PER_DATABASE)
        context = "\n".join([schema.tables, *_inserts(schema.fill(chance, cities))])
        question = schema.ask(chance, cities)
        identity = f"{context}\n{question.text}"
        if identity not in seen and _finds_something(context, question.sql):
            seen.add(identity)
            return _row(schema, context, question, identity)
    return None


def _inserts(tables: Tables) -> Iterator[str]:
    for table, rows in tables.items():
        values = ",\n  ".join(f"({', '.join(_literal(value) for value in row)})" for row in rows)
        yield f"INSERT INTO {table} VALUES\n  {values};"


def _literal(value: str | int | None) -> str:
    if isinstance(value, str):
        return "'{}'".format(value.replace("'", "''"))
    return "NULL" if value is None else str(value)


def _finds_something(context: str, sql: str) -> bool:
    connection = sqlite3.connect(":memory:")
    connection.executescript(context)
    rows = connection.execute(sql).fetchall()
    connection.close()
    return bool(rows)


def _row(schema: Schema, context: str, question: Question, identity: str) -> dict[str, Any]:
    prompt = f"{INSTRUCTION}\n\nThe tables:\n```sql\n{schema.tables}\n```\n\n{question.text}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "sql": question.sql,
        "sql_dialect": "sqlite",
        "sql_prompt": question.text,
        "sql_context": context,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, identity)),
        "metadata": {"schema": schema.name},
    }


if __name__ == "__main__":
    run_prepare(prepare)
