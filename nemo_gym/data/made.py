"""Records of how dataset files were made: with which arguments, and from which input files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from nemo_gym.data.sidecars import read_sidecar, sha256_of, sidecar_of, write_sidecar
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject

KIND = "prepare"


def record_arguments(path: Path, arguments: Mapping[str, object]) -> None:
    """Record the `prepare_args` and the SHA-256 of a new file in `<file>.prepare.json`.

    Inputs that `record_inputs` has recorded for the file are kept.
    """
    _write(path, {**_record_of(path), "prepare_args": _plain(arguments)})


def was_made_with(path: Path, arguments: Mapping[str, object]) -> bool:
    """Return whether a file was made with these `prepare_args` and has not changed since then."""
    return _record_of(path).get("prepare_args") == _plain(arguments)


def record_inputs(path: Path, *sources: Path) -> None:
    """Record the input files of a new file. If one of them changes, `ng eval run` makes the new file again."""
    inputs = [{"path": os.path.relpath(source, path.parent), "sha256": sha256_of(source)} for source in sources]
    _write(path, {"inputs": inputs})


def why_outdated(path: Path, arguments: Mapping[str, object]) -> str | None:
    """Return why a file is outdated: its `prepare_args` are different now, or one of its inputs has changed.

    Return None if the file is up to date. This includes a file without a record, and a file that was replaced after
    it was made, for example by hand.
    """
    record = _record_of(path)
    if record.get("prepare_args", _plain(arguments)) != _plain(arguments):
        return "was made with other prepare_args"
    for recorded in record.get("inputs", ()):
        source = Path(os.path.normpath(path.parent / recorded["path"]))
        if source.is_file() and sha256_of(source) != recorded["sha256"]:
            return f"was made from an earlier version of {source}"
    return None


def _record_of(path: Path) -> JsonObject:
    """Return the record about a file. Return {} if the file has no record, or was replaced after it was recorded."""
    try:
        record = read_sidecar(path, KIND)
        return record if record is not None and record["sha256"] == sha256_of(path) else {}
    except (ValueError, KeyError) as error:
        file = sidecar_of(path, KIND)
        raise DataError(
            f"{file}: not a valid record of how {path.name} was made. Delete the record to use {path.name} as it is."
        ) from error


def _write(path: Path, record: Mapping[str, object]) -> None:
    write_sidecar(path, KIND, {**record, "sha256": sha256_of(path)})


def _plain(arguments: Mapping[str, object]) -> object:
    return json.loads(json.dumps({**arguments}, default=str))
