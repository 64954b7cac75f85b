"""Parse a company from CSV files in WorkBench's format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError
from resources_servers.workplace_assistant.database import (
    CUSTOMER_COLUMNS,
    EMAIL_COLUMNS,
    EVENT_COLUMNS,
    TASK_COLUMNS,
    VISIT_COLUMNS,
    Company,
    Row,
    StartTable,
)


def read_company(folder: Path) -> Company:
    """Parse the tables of a folder. Raises `DataError` with file and line for an invalid table."""
    return Company(
        emails=_table(folder / "emails.csv", EMAIL_COLUMNS),
        events=_table(folder / "calendar_events.csv", EVENT_COLUMNS),
        tasks=_table(folder / "project_tasks.csv", TASK_COLUMNS),
        customers=_table(folder / "customer_relationship_manager_data.csv", CUSTOMER_COLUMNS),
        visits=tuple(_visits(folder / "analytics_data.csv")),
        addresses=tuple(_addresses(folder / "email_addresses.csv")),
    )


def _table(path: Path, columns: tuple[str, ...]) -> StartTable:
    rows: dict[str, Row] = {}
    for line, row in _rows(path, columns):
        row_id = row[columns[0]]
        if not (row_id.isascii() and row_id.isdigit()):
            raise DataError(
                f"{path}:{line}: {columns[0]}: {row_id!r} is not a number. Ids are digits, such as 00000042."
            )
        if row_id in rows:
            raise DataError(
                f"{path}:{line}: {columns[0]}: {row_id} is already used by an earlier row. Remove one row."
            )
        rows[row_id] = row
    return StartTable(columns, rows)


def _visits(path: Path) -> Iterator[Row]:
    for line, row in _rows(path, VISIT_COLUMNS):
        seconds = row["session_duration_seconds"]
        if not (seconds.isascii() and seconds.isdigit()):
            raise DataError(
                f"{path}:{line}: session_duration_seconds: {seconds!r} is not a number. Write digits, such as 90."
            )
        yield row


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    """Yield the number of each row's last line, and the row without additional columns."""
    lines = csv.reader(io.StringIO(_text(path), newline=""))
    header = next(lines, [])
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(f"{path}:1: missing columns: {', '.join(missing)}. Columns found: {', '.join(header)}.")
    for values in lines:
        if len(values) != len(header):
            raise DataError(
                f"{path}:{lines.line_num}: {len(values)} values for {len(header)} columns. Write one value per column."
            )
        # Unescape line breaks, because the files contain them as `\n`.
        row = {column: value.replace("\\n", "\n") for column, value in zip(header, values, strict=True)}
        yield lines.line_num, {column: row[column] for column in columns}


def _addresses(path: Path) -> Iterator[str]:
    """Yield one address per line, skipping an optional header."""
    return (line.strip() for line in _text(path).splitlines() if "@" in line)


def _text(path: Path) -> str:
    try:
        # Spreadsheet programs begin UTF-8 files with a byte order mark.
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}). Set database_dir to a folder with WorkBench's CSV files, "
            "or remove it to use this environment's own company."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
