r"""Generate rows with questions about small databases, each with a reference query.

python resources_servers/text_to_sql/prepare.py --count 100 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from nemo_gym import DataError, Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.text_to_sql.asking import Question, ask, literal
from resources_servers.text_to_sql.schemas import SCHEMAS, Schema, Tables

INSTRUCTION = "Answer the question with one SQLite query, in a fenced block of SQL. Select what is asked for, no more."
TRIES = 1_000
"""Maximum number of attempts per row. Repeated questions and questions with an empty result are discarded."""
MORE_SHARE = 0.25
"""The share of questions that come from `Schema.ask_more`, for schemas that define it."""

CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
CITIES_PER_DATABASE = 6
"""The number of cities in a database. It is small, so that several people share a city."""


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return the output path. The same seed gives the same rows.

    Raises `DataError` if there are fewer than `count` different questions.
    """
    write_rows(output, split_rows(_rows(random.Random(seed)), split, count, key=_task))
    return output


def _task(row: dict[str, Any]) -> list[Any]:
    """Return a key that identifies a task. Table rows are left out, because the prompt does not show them."""
    return [row["metadata"], row["sql"]]


def _rows(chance: random.Random) -> Iterator[dict[str, Any]]:
    seen: set[tuple[str, str]] = set()
    for number, schema in enumerate(cycle(SCHEMAS)):
        row = _new_row(schema, chance, seen)
        if row is None:
            raise DataError(f"count: only {number} different questions found. Use a smaller count.")
        yield row


def _new_row(schema: Schema, chance: random.Random, seen: set[tuple[str, str]]) -> dict[str, Any] | None:
    for _ in range(TRIES):
        cities = chance.sample(CITIES, CITIES_PER_DATABASE)
        context = "\n".join([schema.tables, *_inserts(schema.fill(chance, cities))])
        question = question_about(schema, chance, cities)
        identity = (schema.name, question.sql)
        if identity not in seen and _finds_something(context, question.sql):
            seen.add(identity)
            return _row(schema, context, question)
    return None


def question_about(schema: Schema, chance: random.Random, cities: Sequence[str]) -> Question:
    """Draw a question about a database that contains these cities."""
    if schema.ask_more and chance.random() < MORE_SHARE:
        return schema.ask_more(chance, cities)
    return ask(chance, cities, schema.about)


def _inserts(tables: Tables) -> Iterator[str]:
    for table, rows in tables.items():
        values = ",\n  ".join(f"({', '.join(literal(value) for value in row)})" for row in rows)
        yield f"INSERT INTO {table} VALUES\n  {values};"


def _finds_something(context: str, sql: str) -> bool:
    connection = sqlite3.connect(":memory:")
    connection.executescript(context)
    rows = connection.execute(sql).fetchall()
    connection.close()
    return any(value for row in rows for value in row)


def _row(schema: Schema, context: str, question: Question) -> dict[str, Any]:
    prompt = f"{INSTRUCTION}\n\nThe tables:\n```sql\n{schema.tables}\n```\n\n{question.text}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "sql": question.sql,
        "sql_dialect": "sqlite",
        "sql_prompt": question.text,
        "sql_context": context,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{context}\n{question.text}")),
        "metadata": {"schema": schema.name},
    }


if __name__ == "__main__":
    run_prepare(prepare)
