"""Parse and validate the tools' arguments, such as texts, choices, dates and pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import Row, Table

DATE_LENGTH = len("2023-11-30")
DAY_BEGINS, DAY_ENDS = " 00:00:00", " 23:59:59"
LARGEST_PAGE = 50
LONGEST_QUERY = 1000


def _text(value: Any) -> Any:
    if value is None:
        return ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return json.dumps(value) if is_number else value


Text = Annotated[str, BeforeValidator(_text)]
"""The type of all tool arguments. Numbers are converted to text, and null counts as a missing argument."""


def check_given(**arguments: str) -> None:
    """Raise `ToolError` if one of these arguments is empty."""
    empty = [name for name, value in arguments.items() if not value.strip()]
    if empty:
        raise ToolError(f"{', '.join(empty)} must not be empty.")


def row_of(table: Table, row_id: str) -> Row:
    """Return the row with this id. Raises `ToolError` if it does not exist."""
    row = table.get(row_id)
    if row is None:
        raise ToolError(f"There is no {table.start.columns[0]} {row_id[:40]!r}.")
    return row


def field_of(table: Table, row_id: str, field: str) -> dict[str, str]:
    """Return `{field: value}` of the row with this id. Raises `ToolError` for an unknown id or field."""
    row = row_of(table, row_id)
    check_field(field, table.start.columns)
    return {field: row[field]}


def check_field(field: str, known: Sequence[str]) -> None:
    """Raise `ToolError` for an unknown field."""
    if field not in known:
        raise ToolError(f"There is no field {field[:40]!r}. The fields are {', '.join(known)}.")


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    """Return the value if `known` contains it. Case matters. Raises `ToolError` otherwise."""
    if value in known:
        return value
    raise ToolError(f"{name} {value[:40]!r} is not valid; choose one of {', '.join(known)}.")


def address(name: str, value: str) -> str:
    """Return an email address in lower case. Raises `ToolError` if it is invalid."""
    if "@" not in value or "." not in value:
        raise ToolError(f"{name} {value[:80]!r} is not an email address.")
    return value.lower()


def words_of(query: str) -> set[str]:
    """Return the words of a query in lower case. Raises `ToolError` if it is too long."""
    if len(query) > LONGEST_QUERY:
        raise ToolError(f"The query is longer than {LONGEST_QUERY} characters.")
    return set(query.lower().split())


def moment(name: str, value: str, day: str = DAY_BEGINS) -> str:
    """Normalise a date, with or without a time, to `YYYY-MM-DD HH:MM:SS`, which sorts chronologically.

    A date without a time becomes the first second of the day, or the last second if `day` is `DAY_ENDS`. Raises
    `ToolError` if the value is not a date.
    """
    try:
        read = datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise ToolError(f"{name} {value[:40]!r} is not a date; write YYYY-MM-DD or YYYY-MM-DD HH:MM:SS.") from error
    if len(value.strip()) <= DATE_LENGTH:
        return f"{read:%Y-%m-%d}{day}"
    return f"{read:%Y-%m-%d %H:%M:%S}"


def day_of(name: str, value: str) -> str:
    """Return the day of a date, with or without a time, as `YYYY-MM-DD`. Raises `ToolError` if it is not a date."""
    return moment(name, value)[:DATE_LENGTH]


def contains(row: Row, wanted: dict[str, str]) -> bool:
    """Return whether each column in `wanted` contains its wanted text. Case is ignored."""
    return all(text.lower() in row[column].lower() for column, text in wanted.items())


def page_of(kind: str, found: Iterable[Row], page: str, page_size: str) -> dict[str, Any]:
    """Return one page of the found rows under the key `kind`, and the page and total counts under `pagination`."""
    rows = list(found)
    number = _counting("page", page or "1")
    size = min(_counting("page_size", page_size or "5"), LARGEST_PAGE)
    shown = rows[(number - 1) * size : number * size]
    pagination = {"page": number, "page_size": size, "pages": -(-len(rows) // size), "total": len(rows)}
    return {kind: shown, "pagination": pagination}


def _counting(name: str, value: str) -> int:
    # Reject longer numbers without parsing them, because they are never valid pages and are slow to parse.
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) > 0):
        raise ToolError(f"{name} {value[:40]!r} is not a number of 1 or more.")
    return int(value)
