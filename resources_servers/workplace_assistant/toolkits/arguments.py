"""What the arguments of all tools have in common: texts, words of a list, dates, pages."""

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
"""Every argument of every tool. A number is taken as its digits, null as an argument that was left out."""


def check_given(**arguments: str) -> None:
    """Raises `ToolError` where one of these arguments is empty."""
    empty = [name for name, value in arguments.items() if not value.strip()]
    if empty:
        raise ToolError(f"{', '.join(empty)} must not be empty.")


def row_of(table: Table, row_id: str) -> Row:
    """The row with this id. Raises `ToolError` where there is none."""
    row = table.get(row_id)
    if row is None:
        raise ToolError(f"There is no {table.start.columns[0]} {row_id[:40]!r}.")
    return row


def field_of(table: Table, row_id: str, field: str) -> dict[str, str]:
    """One field of the row with this id."""
    row = row_of(table, row_id)
    check_field(field, table.start.columns)
    return {field: row[field]}


def check_field(field: str, known: Sequence[str]) -> None:
    """Raises `ToolError` where a field is none of these."""
    if field not in known:
        raise ToolError(f"There is no field {field[:40]!r}; there are {', '.join(known)}.")


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    """The known value that is meant, in its own spelling. Raises `ToolError` where there is none."""
    for each in known:
        if each.lower() == value.strip().lower():
            return each
    raise ToolError(f"{name} {value[:40]!r} is not valid; choose one of {', '.join(known)}.")


def address(name: str, value: str) -> str:
    """An email address in lower case. Raises `ToolError` for what cannot be one."""
    if "@" not in value or "." not in value:
        raise ToolError(f"{name} {value[:80]!r} is not an email address.")
    return value.lower()


def words_of(query: str) -> set[str]:
    """The words of a query in lower case. Raises `ToolError` where it is too long to be one."""
    if len(query) > LONGEST_QUERY:
        raise ToolError(f"The query is longer than {LONGEST_QUERY} characters.")
    return set(query.lower().split())


def moment(name: str, value: str, day: str = DAY_BEGINS) -> str:
    """A date, or a date with a time, as `YYYY-MM-DD HH:MM:SS`: such texts compare as the moments do.

    A date alone is taken for its first second, or with `DAY_ENDS` for its last one. Raises `ToolError`.
    """
    try:
        read = datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise ToolError(f"{name} {value[:40]!r} is not a date; write YYYY-MM-DD or YYYY-MM-DD HH:MM:SS.") from error
    if len(value.strip()) <= DATE_LENGTH:
        return f"{read:%Y-%m-%d}{day}"
    return f"{read:%Y-%m-%d %H:%M:%S}"


def day_of(name: str, value: str) -> str:
    """The day of a date, with or without a time, as `YYYY-MM-DD`. Raises `ToolError`."""
    return moment(name, value)[:DATE_LENGTH]


def contains(row: Row, wanted: dict[str, str]) -> bool:
    """Whether each of these columns contains its text; upper and lower case count as one."""
    return all(text.lower() in row[column].lower() for column, text in wanted.items())


def page_of(kind: str, found: Iterable[Row], page: str, page_size: str) -> dict[str, Any]:
    """One page of what was found, under the name of its kind, and how much there is."""
    rows = list(found)
    number = _counting("page", page or "1")
    size = min(_counting("page_size", page_size or "5"), LARGEST_PAGE)
    shown = rows[(number - 1) * size : number * size]
    pagination = {"page": number, "page_size": size, "pages": -(-len(rows) // size), "total": len(rows)}
    return {kind: shown, "pagination": pagination}


def _counting(name: str, value: str) -> int:
    # Longer numbers are no pages, and the slowest to read.
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) > 0):
        raise ToolError(f"{name} {value[:40]!r} is not a number from 1 on.")
    return int(value)
