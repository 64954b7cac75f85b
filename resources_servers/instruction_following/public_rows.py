"""Read the files of IFEval and IFBench. This environment can grade their rows without a conversion."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import DataError, InvalidTask, convert_table
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject
from resources_servers.instruction_following.constraints import UNSUPPORTED, constraint

logger = logging.getLogger(__name__)

COLUMNS = {
    "key": int | str,
    "prompt": str,
    "instruction_id_list": list[str],
    "kwargs": list[dict[str, Any] | None],
}


def public_rows(path: Path, *, skip_bad: bool = False) -> Iterator[JsonObject]:
    """Yield the rows of a file, without the arguments that are null.

    Rows with a constraint in `UNSUPPORTED` are skipped and reported in one warning. Raise `DataError` for an unknown
    constraint or invalid arguments. `skip_bad` leaves out such rows as well.
    """
    left_out: Counter[str] = Counter()
    kept = 0
    for row in convert_table(path, COLUMNS, _row, skip_bad=skip_bad):
        if isinstance(row, str):
            left_out[row] += 1
        else:
            kept += 1
            yield row
    if left_out:
        reasons = ", ".join(f"{rows} with {ids}" for ids, rows in sorted(left_out.items()))
        logger.warning(
            "%s: %d of %d rows are left out, because their constraints are not supported: %s.",
            path,
            left_out.total(),
            kept + left_out.total(),
            reasons,
        )


def _row(table_row: TableRow) -> JsonObject | str:
    """Return the row, or the ids of its constraints that are not supported."""
    row, where = table_row.fields, f"{table_row.place} (key {table_row.fields['key']})"
    if unsupported := UNSUPPORTED.keys() & row["instruction_id_list"]:
        return " and ".join(sorted(unsupported))
    ids, arguments = row["instruction_id_list"], row["kwargs"]
    if not ids or len(ids) != len(arguments):
        raise DataError(
            f"{where}: instruction_id_list has {len(ids)} ids, kwargs has {len(arguments)} items. Fix the row."
        )
    given = [_arguments_of(id_, each or {}) for id_, each in zip(ids, arguments, strict=True)]
    try:
        for id_, each in zip(ids, given, strict=True):
            constraint(id_, each)
    except InvalidTask as error:
        raise DataError(f"{where}: {error}") from error
    return {**row, "kwargs": given}


def _arguments_of(id_: str, arguments: JsonObject) -> JsonObject:
    # Drop the arguments of custom tasks, because the original grader accepts any arguments here and ignores them.
    if id_.startswith("custom:"):
        return {}
    return {name: value for name, value in arguments.items() if value is not None}
