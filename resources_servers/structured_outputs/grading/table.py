"""Parse CSV into objects, one per row, with the types of the schema."""

from __future__ import annotations

import csv
import io
from typing import Any, NamedTuple

from resources_servers.structured_outputs.grading.described import Described
from resources_servers.structured_outputs.grading.formats import MOST_VALUES, Unreadable


class Table(NamedTuple):
    """A parsed CSV document: the column names, and one object per row."""

    header: list[str]
    rows: list[dict[str, Any]]


def read_csv(text: str, row: Described) -> Table:
    """Parse a CSV text with a header line. Raises `Unreadable` if it is invalid.

    Cells become numbers, booleans or nulls if the schema expects them in the column. Lists and objects must be written
    as JSON.
    """
    reader = csv.reader(io.StringIO(text.strip("\r\n"), newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = _header([cell.strip() for cell in cells])
                columns = [row.at(name) for name in header]
            elif cells:
                if len(cells) != len(header):
                    raise Unreadable(
                        f"not CSV: line {reader.line_num} has {len(cells)} cells, but the header has {len(header)}"
                    )
                if len(rows) * len(header) > MOST_VALUES:
                    raise Unreadable(f"the document has more than {MOST_VALUES} values")
                values = [column.json_of(cell) for column, cell in zip(columns, cells, strict=True)]
                rows.append(dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise Unreadable(f"not CSV: line {reader.line_num}: {error}") from error
    if header is None:
        raise Unreadable("not CSV: the header line is missing")
    return Table(header, rows)


def _header(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise Unreadable("not CSV: two columns have the same name")
    if len(names) > MOST_VALUES:
        raise Unreadable(f"the document has more than {MOST_VALUES} values")
    return names
