"""The databases of a schema: the SQLite files and scripts of a folder."""

from __future__ import annotations

import re
from pathlib import Path

from nemo_gym import InvalidTask
from resources_servers.text_to_sql.sql import Database

FILES, SCRIPTS = "*.sqlite", "*.sql"
# Allow only plain names, because a row's `db_id` must not lead out of the folder.
_NAME = re.compile(r"\w[\w .-]{0,59}")


def databases_of(folder: Path, db_id: str) -> list[Database]:
    """Return the databases in `<folder>/<db_id>`, of which the file named after the schema is the first.

    Each one is an SQLite file (`*.sqlite`) or a script (`*.sql`). Raise `InvalidTask` if the folder has neither.
    """
    if not is_name(db_id):
        raise InvalidTask(f"db_id: {db_id[:80]!r} is not the name of a folder. Fix the row.")
    own = folder / db_id
    found = sorted([*own.glob(FILES), *own.glob(SCRIPTS)], key=lambda path: (path.stem != db_id, path.name))
    if not found:
        raise InvalidTask(
            f"db_id: {own} contains neither {FILES} nor {SCRIPTS}. Prepare the benchmark, or correct database_dir or "
            "the row."
        )
    return [path if path.suffix == ".sqlite" else path.read_text("utf-8") for path in found]


def is_name(db_id: str) -> bool:
    """Return whether a text may be the name of a schema's folder."""
    return _NAME.fullmatch(db_id) is not None
