"""Convert the lines of a file. If the user passes `--skip-bad`, leave out lines that cannot be converted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from nemo_gym.data.tables import TableRow, unchecked_rows
from nemo_gym.errors import DataError
from nemo_gym.jsonl import Line, parse_row, read_raw_lines

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Made = TypeVar("Made")

MOST_REPORTED = 20
"""The number of skipped lines that are logged one by one. Further ones are only counted."""


def convert_each(items: Iterable[Item], convert: Callable[[Item], Made], *, skip_bad: bool = False) -> Iterator[Made]:
    """Yield the result for each item, such as the row for a line of a file.

    If `convert` raises `DataError`, raise it with a note about `--skip-bad`. With `skip_bad`, leave out and log such
    items instead, and raise `DataError` only if no item could be converted.
    """
    made = skipped = 0
    first: DataError | None = None
    for item in items:
        try:
            result = convert(item)
        except DataError as error:
            if not skip_bad:
                raise DataError(f"{error} To leave out such lines, prepare the data with --skip-bad.") from error
            skipped += 1
            first = first or error
            if skipped <= MOST_REPORTED:
                logger.warning("skipped %s", error)
        else:
            made += 1
            yield result
    if skipped:
        logger.warning("skipped %d of %d lines", skipped, made + skipped)
        if not made:
            raise DataError(f"No line could be converted. The first problem: {first}") from first


def convert_lines(path: Path, convert: Callable[[Line], Made], *, skip_bad: bool = False) -> Iterator[Made]:
    """Yield the converted row of each line of a JSON Lines file. Bad lines are handled as in `convert_each`."""
    return convert_each(
        read_raw_lines(path),
        lambda line: convert(Line(line.number, line.raw, parse_row(line.raw, path, line.number))),
        skip_bad=skip_bad,
    )


def convert_table(
    path: Path, columns: Mapping[str, Any], convert: Callable[[TableRow], Made], *, skip_bad: bool = False
) -> Iterator[Made]:
    """Yield the converted row of each row of `read_table`. Bad rows are handled as in `convert_each`."""
    return convert_each(unchecked_rows(path, columns), lambda checked: convert(checked()), skip_bad=skip_bad)
