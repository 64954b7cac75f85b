"""Split generated rows into a train and a validation split that have no row in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, TypeVar

from nemo_gym.errors import DataError
from nemo_gym.text import counted

Split = Literal["train", "validation"]
Row = TypeVar("Row")

PARTS = 11
"""The number of equal parts into which rows are divided by hash. One part is the validation split."""
DRAWS_PER_ROW, MORE_DRAWS = 200, 10_000


def split_rows(
    rows: Iterable[Row], split: Split | None, count: int, *, key: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """Yield `count` distinct rows of a split from a stream of generated rows. The stream may be endless.

    If `split` is None, yield the first `count` rows as they are.

    A row's hash decides its split, so the splits have no row in common, even if they were made with different
    seeds and counts. Pass `key` if a row has fields that do not belong to the task, such as a row number. `key`
    returns the part of the row to hash, which must be serializable as JSON.

    Raises `DataError` if `count` is below 1. With a split, also raises it if the stream ends too early, or yields no
    new row of the split for `200 * count + 10,000` rows.
    """
    check_count(count)
    return islice(rows, count) if split is None else _rows_of(rows, split, count, key)


def check_count(count: object) -> None:
    """Raise `DataError` if a number of rows is below 1, because an empty file would replace the output."""
    if isinstance(count, int) and count < 1:
        raise DataError(f"count: must be at least 1, found {count}.")


def _rows_of(rows: Iterable[Row], split: Split, count: int, key: Callable[[Row], object] | None) -> Iterator[Row]:
    seen: set[bytes] = set()
    patience = DRAWS_PER_ROW * count + MORE_DRAWS
    draws_left = patience
    for row in rows:
        digest = _digest(key(row) if key else row)
        if digest not in seen and split_of(digest) == split:
            seen.add(digest)
            draws_left = patience
            yield row
            if len(seen) == count:
                return
        draws_left -= 1
        if draws_left <= 0:
            break
    if len(seen) < count:
        raise DataError(
            f"count: {count} rows of split '{split}' are asked for, but only {counted(len(seen), 'distinct row')} "
            f"of it {'exists' if len(seen) == 1 else 'exist'}. Ask for fewer rows, or let the generator vary more."
        )


def split_of(digest: bytes) -> Split:
    """Return the split to which a row with this SHA-256 belongs."""
    return "validation" if int.from_bytes(digest) % PARTS == 0 else "train"


def _digest(value: object) -> bytes:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).digest()
