"""Constraints that require a small table: its columns, number of rows and quoted fields."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable

_CITIES = ["ID", "Country", "City", "Year", "Count"]
_PRODUCTS = ["ProductID", "Category", "Brand", "Price", "Stock"]
_STUDENTS = ["StudentID", "Subject", "Grade", "Semester", "Score"]
_IN_QUOTES = re.compile(r'"[^"\n]*"')


def cities(text: str) -> bool:
    """Require CSV with seven rows and the header `ID,Country,City,Year,Count`."""
    return _is_table(_rows(text), _CITIES, 7)


def products(text: str) -> bool:
    """Require CSV with 14 rows, the header `ProductID,Category,Brand,Price,Stock`, and a symbol in a quoted field."""
    _, _, body = text.strip().partition("\n")
    in_quotes = (match[0][1:-1] for match in _IN_QUOTES.finditer(body))
    return _is_table(_rows(text), _PRODUCTS, 14) and any(map(_has_sign, in_quotes))


def students(text: str) -> bool:
    """Require three tab-separated rows with quoted fields: `StudentID`, `Subject`, `Grade`, `Semester`, `Score`."""
    rows = [[field.strip() for field in line.split("\t")] for line in text.strip().split("\n")]
    if not all(len(field) > 1 and field[0] == field[-1] == '"' for row in rows for field in row):
        return False
    return _is_table([[field[1:-1] for field in row] for row in rows], _STUDENTS, 3)


def _is_table(rows: list[list[str]], names: list[str], count: int) -> bool:
    return len(rows) == count + 1 and rows[0] == names and all(len(row) == len(names) for row in rows)


def _rows(text: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text.strip(), newline=""), skipinitialspace=True, strict=True))
    except csv.Error:
        return []


def _has_sign(field: str) -> bool:
    return any(not (character.isalnum() or character.isspace() or character == "_") for character in field)


CHECKS: dict[str, Callable[..., bool]] = {
    "custom:csv_city": cities,
    "custom:csv_special_character": products,
    "custom:csv_quotes": students,
}
