"""Read tables from CSV, Excel and JSON Lines files, with the row numbers that spreadsheet programs show."""

from __future__ import annotations

import csv
import datetime
import importlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nemo_gym.data.tables import long_csv_values
from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_lines
from nemo_gym.text import did_you_mean_or_all

_MARKED_HEADER = re.compile(r"#\w+[,;\t]")
DELIMITERS = (",", ";", "\t")
"""The supported delimiters. Spreadsheet programs use semicolons in countries with decimal commas."""
LIST_SEPARATOR = "|"
SUFFIXES = (".csv", ".tsv", ".xlsx", ".jsonl")


class MissingColumn(DataError):
    """The error for a column that a sheet does not have."""


class SheetRow(NamedTuple):
    """One row of a sheet. `number` is the row's number in a spreadsheet, or the line number in a JSON Lines file."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True)
class Sheet:
    """A table with a header. Cells are text without leading and trailing spaces. Blank rows are skipped."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]

    def column(self, name: str) -> str:
        """Find a column, ignoring case, and return its name in the header. Raise `MissingColumn` if it is missing."""
        if name in self.columns:
            return name
        alike = [column for column in self.columns if column.casefold() == name.strip().casefold()]
        if len(alike) == 1:
            return alike[0]
        raise MissingColumn(
            f"{self.path}: column '{name}' is missing.{did_you_mean_or_all(name, self.columns, 'columns')}"
        )


def read_sheet(path: Path) -> Sheet:
    """Read a table from a file. Raise `DataError`, with the row if possible, if the table is not valid."""
    if not path.is_file():
        raise DataError(f"{path}: file not found. Check the path.")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: a table must be one of {', '.join(SUFFIXES)}. Save it in one of these formats.")
    if suffix == ".jsonl":
        return _of_json_lines(path)
    records = _excel_records(path) if suffix == ".xlsx" else _csv_records(path)
    return _of_records(path, records)


def _of_records(path: Path, records: Iterable[Sequence[str]]) -> Sheet:
    numbered = enumerate(records, start=1)
    header = next(((number, cells) for number, cells in numbered if any(cells)), None)
    if header is None:
        raise DataError(f"{path}: the table is empty. Its first row must hold the names of the columns.")
    columns = _header(path, header[0], header[1])
    rows = tuple(_row(path, number, columns, cells) for number, cells in numbered if any(cells))
    return Sheet(path, columns, rows)


def _header(path: Path, number: int, cells: Sequence[str]) -> tuple[str, ...]:
    used = list(cells)
    while used and not used[-1]:
        used.pop()
    for place, name in enumerate(used, start=1):
        if not name:
            raise DataError(
                f"{path}: row {number}: column {place} does not have a name. Add one, or delete the column."
            )
        if used.index(name) != place - 1:
            raise DataError(f"{path}: row {number}: two columns are named '{name}'. Rename one of them.")
    return tuple(used)


def _row(path: Path, number: int, columns: Sequence[str], cells: Sequence[str]) -> SheetRow:
    if any(cells[len(columns) :]):
        raise DataError(
            f"{path}: row {number} has {len(cells)} cells, but the header has {len(columns)}. Put cells that "
            "contain the separator in double quotes."
        )
    padded = [*cells, *[""] * (len(columns) - len(cells))]
    return SheetRow(number, dict(zip(columns, padded, strict=False)))


def _csv_records(path: Path) -> Iterator[list[str]]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start}). Save it as 'CSV UTF-8', or as .xlsx."
        ) from error
    try:
        with long_csv_values():
            text = _without_comments(text)
            delimiter = max(DELIMITERS, key=lambda each: len(_first_record(text, each)))
            for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
                yield [cell.strip() for cell in record]
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV file ({error}). Check the double quotes.") from error


def _without_comments(text: str) -> str:
    """Empty the lines above the header that begin with `#`. A header such as `#id,question` stays."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() and not (line.startswith("#") and not _MARKED_HEADER.match(line)):
            break
        lines[number] = "\n"
    return "".join(lines)


def _first_record(text: str, delimiter: str) -> list[str]:
    """Return the first record that is not blank, or an empty list if there is none."""
    records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return next(filter(any, records), [])


def _excel_records(path: Path) -> Iterator[list[str]]:
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError as error:
        raise DataError(
            f"{path}: openpyxl is required for Excel files, but not installed. Run: pip install 'nemo-gym[eval]'"
        ) from error
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        for cells in book.worksheets[0].iter_rows(values_only=True):
            yield [_as_text(cell) for cell in cells]
        book.close()
    # Catch all errors, because a damaged zip archive or invalid XML may raise errors of many types.
    except Exception as error:
        raise DataError(
            f"{path}: not a readable Excel file ({error}). Save it again, or save it as CSV UTF-8."
        ) from error


def _as_text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return str(cell).strip()


def _of_json_lines(path: Path) -> Sheet:
    rows: list[SheetRow] = []
    columns: dict[str, None] = {}
    for line in read_lines(path):
        columns |= dict.fromkeys(line.row)
        cells = {name: _cell_of(value, f"{path}:{line.number}: {name}") for name, value in line.row.items()}
        rows.append(SheetRow(line.number, cells))
    if not rows:
        raise DataError(f"{path}: the file is empty. Each line must hold one JSON object.")
    return Sheet(
        path, tuple(columns), tuple(SheetRow(each.number, dict.fromkeys(columns, "") | each.cells) for each in rows)
    )


def _cell_of(value: object, where: str) -> str:
    if isinstance(value, list) and all(isinstance(each, (str, int, float)) for each in value):
        return LIST_SEPARATOR.join(_as_text(each) for each in value)
    if isinstance(value, (list, dict)):
        raise DataError(f"{where}: expected text, a number or a list of them, found {type(value).__name__}.")
    return _as_text(value)
