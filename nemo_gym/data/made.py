"""The record of a dataset's file: the arguments that it was made with, and its input."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject

SUFFIX = ".prepare.json"


def record_arguments(path: Path, arguments: Mapping[str, object]) -> None:
    """Write `<file>.prepare.json`: the `prepare_args` that a new file was made with, its SHA-256, and its input."""
    _write(path, {**_record_of(path), "prepare_args": _plain(arguments)})


def record_input(path: Path, source: Path) -> None:
    """Record that a new file was made from the file `source`."""
    _write(path, {"input": {"path": os.path.relpath(source, path.parent), "sha256": _hash_of(source)}})


def has_other_arguments(path: Path, arguments: Mapping[str, object]) -> bool:
    """Return whether a file was made with arguments other than these.

    Return False for a file without a record, and for one that was replaced since, for example by hand.
    """
    return bool(_record_of(path).get("prepare_args", _plain(arguments)) != _plain(arguments))


def changed_input(path: Path) -> Path | None:
    """Return the file from which this one was made, if it has other contents now."""
    recorded = _record_of(path).get("input")
    if recorded is None:
        return None
    source = Path(os.path.normpath(path.parent / recorded["path"]))
    return source if source.is_file() and _hash_of(source) != recorded["sha256"] else None


def _record_of(path: Path) -> JsonObject:
    """Return the record about a file; empty without one, or if the file was replaced since."""
    file = _record_path(path)
    if not file.is_file():
        return {}
    try:
        record: JsonObject = json.loads(file.read_bytes())
        return record if record["sha256"] == _hash_of(path) else {}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not a record of arguments. Delete it to use {path.name} as it is.") from error


def _write(path: Path, record: JsonObject) -> None:
    file = _record_path(path)
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    partial.write_text(f"{json.dumps({**record, 'sha256': _hash_of(path)}, indent=2)}\n", "utf-8")
    partial.replace(file)


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}{SUFFIX}")


def _plain(arguments: Mapping[str, object]) -> object:
    return json.loads(json.dumps({**arguments}, default=str))


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
