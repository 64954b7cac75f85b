"""Read tables of public datasets: Parquet, CSV, JSON Lines and JSON. All but Parquet may be compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from nemo_gym.data.sidecars import SOURCE_KIND, sidecar_of
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject

BATCH_ROWS = 256
"""The number of rows of a Parquet file that are in memory at once."""
LONGEST_CSV_VALUE = 2**31 - 1


class TableRow(NamedTuple):
    """A row of a table, with its location."""

    number: int
    """Counted from 1, without blank lines."""
    place: str
    """The file, with the number of the line or row, for messages."""
    fields: JsonObject


class _Unchecked(NamedTuple):
    place: str
    parse: Callable[[], Mapping[str, object]]
    """Return the row's values. Raise `DataError` if the row is invalid."""


def read_table(path: Path, columns: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Yield these columns of a file's rows. `columns` is like `{"question": str, "image": str | None}`.

    The file ends in `.parquet`, `.csv`, `.jsonl` or `.json` (a list of objects). All but `.parquet` may have an
    additional `.gz`. For a CSV file without a header, number the columns: `{"0": str, "1": str}`.

    Raise `DataError` if the file is missing or invalid, if a column is missing, or if a value has another type. The
    message names the file, and the row and the column if these are known.
    """
    for checked in unchecked_rows(path, columns):
        yield checked().fields


def unchecked_rows(path: Path, columns: Mapping[str, Any]) -> Iterator[Callable[[], TableRow]]:
    """Yield a function for each row of `read_table`. It checks and returns the row, or raises `DataError`.

    So the caller may skip invalid rows. An error of the iteration itself concerns the whole file.
    """
    suffix = "".join(Path(path.name.removesuffix(".gz")).suffixes[-1:])
    if suffix not in _READERS:
        raise DataError(f"{path}: a table must be one of {', '.join(_READERS)}. Convert the file.")
    types: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(type_) for name, type_ in columns.items()}
    # Convert the values of a CSV file to the types of the columns, because a CSV file contains only strings.
    is_strict = suffix != ".csv"
    for number, row in enumerate(_READERS[suffix](path, list(columns)), start=1):
        yield partial(_checked, number, row, types, is_strict)


def _checked(number: int, row: _Unchecked, types: Mapping[str, TypeAdapter[Any]], is_strict: bool) -> TableRow:
    fields = row.parse()
    values = {name: _value(row.place, fields, name, adapter, is_strict) for name, adapter in types.items()}
    return TableRow(number, row.place, values)


def _value(place: str, fields: Mapping[str, object], name: str, adapter: TypeAdapter[Any], is_strict: bool) -> object:
    if name not in fields:
        raise _missing(place, name, fields)
    value = fields[name]
    try:
        return adapter.validate_python(value, strict=is_strict)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        part = "".join(f"[{each!r}]" for each in problem["loc"])
        raise DataError(
            f"{place}: column '{name}'{part}: {problem['msg']}, found {type(value).__name__} "
            f"{repr(value)[:60]}. The data may have changed since this preparation was written."
        ) from error


def _missing(place: str, name: str, present: Iterable[object]) -> DataError:
    return DataError(
        f"{place}: column '{name}' is missing. The columns are {', '.join(map(str, present))}. The data may have "
        "changed since this preparation was written: name an earlier revision."
    )


def _check_header(path: Path, columns: Iterable[str], present: Sequence[str]) -> None:
    if missing := [name for name in columns if name not in present]:
        raise _missing(str(path), missing[0], present)


def _parquet_rows(path: Path, columns: list[str]) -> Iterator[_Unchecked]:
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"{path}: pyarrow is required, but not installed. Run: pip install 'nemo-gym[hub]'") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            _check_header(path, columns, file.schema_arrow.names)
            for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                for fields in batch.to_pylist():
                    number += 1
                    place = f"{path}: row {number}"
                    yield _Unchecked(place, partial(_object, fields, place))
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(path, "a Parquet file", error) from error


@contextmanager
def long_csv_values() -> Iterator[None]:
    """Let the module `csv` read values of more than 131,072 characters, such as documents, in the `with` block."""
    before = csv.field_size_limit(LONGEST_CSV_VALUE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _csv_rows(path: Path, columns: list[str]) -> Iterator[_Unchecked]:
    has_header = not all(name.isdecimal() for name in columns)
    with long_csv_values(), _text_of(path, "a CSV file") as text:
        reader = csv.reader(io.TextIOWrapper(text, "utf-8-sig", newline=""))
        header = next(reader, []) if has_header else []
        if header:
            _check_header(path, columns, header)
        for values in reader:
            if not values:
                continue
            names = header if has_header else list(map(str, range(len(values))))
            place = f"{path}:{reader.line_num}"
            yield _Unchecked(place, partial(_named, names, values, place))


def _named(names: Sequence[str], values: Sequence[str], place: str) -> Mapping[str, object]:
    # Ignore empty values at the end, because spreadsheets write them for columns without a name.
    if any(values[len(names) :]):
        raise DataError(
            f"{place}: the row has {len(values)} values, but the header has {len(names)} columns. Put values "
            "that contain commas in double quotes."
        )
    return dict(zip(names, values, strict=False))


def _json_lines(path: Path, columns: list[str]) -> Iterator[_Unchecked]:
    with _text_of(path, "a JSON Lines file") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"{path}:{number}"
                yield _Unchecked(place, partial(_json_line, path, line, place))


def _json_line(path: Path, line: bytes, place: str) -> Mapping[str, object]:
    try:
        return _object(orjson.loads(line), place)
    except orjson.JSONDecodeError as error:
        raise _damaged(path, f"{place}:{error.colno}: not valid JSON ({error.msg}).") from error


def _json_rows(path: Path, columns: list[str]) -> Iterator[_Unchecked]:
    with _text_of(path, "a JSON file") as file:
        rows = orjson.loads(file.read())
    if not isinstance(rows, list):
        raise DataError(f"{path}: expected a list of objects, found {type(rows).__name__}.")
    for number, row in enumerate(rows, start=1):
        place = f"{path}: row {number}"
        yield _Unchecked(place, partial(_object, row, place))


def _object(row: object, place: str) -> Mapping[str, object]:
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected a JSON object, found {type(row).__name__}.")
    return row


@contextmanager
def _text_of(path: Path, kind: str) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:
            yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, orjson.JSONDecodeError) as error:
        raise _unreadable(path, kind, error) from error


def _unreadable(path: Path, kind: str, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: file not found. Check the path, or create the file.")
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    return _damaged(path, f"{path}: cannot be read as {kind} ({reason}).")


def _damaged(path: Path, problem: str) -> DataError:
    # Suggest another download only for a file that has a record of its source.
    if sidecar_of(path, SOURCE_KIND).is_file():
        return DataError(f"{problem} Delete the file to download it again.")
    return DataError(f"{problem} Correct or replace the file.")


_READERS: Mapping[str, Callable[[Path, list[str]], Iterable[_Unchecked]]] = {
    ".parquet": _parquet_rows,
    ".csv": _csv_rows,
    ".jsonl": _json_lines,
    ".json": _json_rows,
}
