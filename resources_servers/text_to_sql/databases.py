"""Find the databases of a schema: the SQLite files and SQL scripts in the schema's folder."""

from __future__ import annotations

import re
from pathlib import Path

from nemo_gym import InvalidTask
from resources_servers.text_to_sql.sql import Database

FILES, SCRIPTS = "*.sqlite", "*.sql"
# Allow only plain names, because a row's `db_id` must not point to a path outside of the folder.
_NAME = re.compile(r"\w[\w .-]{0,59}")


def databases_of(folder: Path, db_id: str) -> list[Database]:
    """Return the databases in `<folder>/<db_id>`. The file `<db_id>.sqlite` or `<db_id>.sql` comes first.

    Return an SQLite file (`*.sqlite`) as its path, and a script (`*.sql`) as its text. Raise `InvalidTask` if there
    is neither.
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
    """Return whether a text is a valid name for a schema's folder."""
    return _NAME.fullmatch(db_id) is not None
