"""Read and write records about dataset files. `<file>.<kind>.json` is a record about `<file>`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import orjson

from nemo_gym.jsonl import JsonObject, replacing

SOURCE_KIND = "source"
"""The kind of record that contains the source of a downloaded file."""


def sidecar_of(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}.json")


def read_sidecar(path: Path, kind: str) -> JsonObject | None:
    """Return a file's record, or None if it has none. Raise `ValueError` if the record is not a JSON object."""
    file = sidecar_of(path, kind)
    if not file.is_file():
        return None
    record = orjson.loads(file.read_bytes())
    if not isinstance(record, dict):
        raise ValueError(f"{file}: expected a JSON object, found {type(record).__name__}")
    return record


def write_sidecar(path: Path, kind: str, record: Mapping[str, object]) -> None:
    """Write a file's record. Replace an earlier record atomically."""
    with replacing(sidecar_of(path, kind)) as partial:
        partial.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
