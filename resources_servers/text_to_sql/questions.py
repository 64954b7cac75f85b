"""Build rows from public questions. The questions' databases are SQLite files."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from nemo_gym import DataError
from resources_servers.text_to_sql.databases import is_name

_SUFFIXES = (".sqlite", ".db")


def place_of_database(path: PurePosixPath, ids: Collection[str]) -> Path | None:
    """Return where to store a file of an archive, relative to `database_dir`, or None if the file is not a database.

    In an archive, each database is in a folder whose name is one of `ids`.
    """
    # Skip files such as `._name`, which macOS adds to archives.
    if path.parent.name not in ids or path.suffix not in _SUFFIXES or path.name.startswith("."):
        return None
    return Path(path.parent.name, f"{path.stem}.sqlite")


def row_of(folder: Path, db_id: str, question: str, sql: str, *, evidence: str = "", where: str) -> dict[str, Any]:
    """Return the row of a question about the databases in `<folder>/<db_id>`.

    Raise `DataError` if the question is incomplete or its database is missing. The message begins with `where`.
    """
    if not is_name(db_id):
        raise DataError(f"{where}: db_id: {db_id[:80]!r} is not the name of a database.")
    if not question.strip() or not sql.strip():
        raise DataError(f"{where}: the question or its query is blank.")
    path = folder / db_id / f"{db_id}.sqlite"
    if not path.is_file():
        raise DataError(f"{where}: db_id: the archive does not contain {db_id}/{path.name}. Use the complete archive.")
    hint = f"\n\nKnown: {evidence.strip()}" if evidence.strip() else ""
    return {
        "db_id": db_id,
        "sql": sql.strip(),
        "sql_prompt": f"{question.strip()}{hint}",
        "sql_context": tables_of(path),
        "sql_dialect": "sqlite",
    }


@cache
def tables_of(path: Path) -> str:
    """Return the statements that create the tables of a database file. Raise `DataError` if it does not have any."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            found = connection.execute(
                "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
                "ORDER BY rowid"
            ).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path}: not an SQLite database ({error}). Delete it to extract it again.") from error
    if not found:
        raise DataError(
            f"{path}: the database does not contain tables. Download the dataset's archive again, because it may be "
            "incomplete."
        )
    return "\n".join(f"{sql.strip()};" for (sql,) in found)
