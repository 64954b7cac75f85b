"""The runs in the files and folders that a command line names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nemo_gym.config.suggestions import did_you_mean
from nemo_gym.errors import DataError
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.viewer.library import Library


def library_of(given: Sequence[Path]) -> Library:
    """Return the runs in these files and folders. Raise `DataError` if a path is unreadable or contains no run."""
    for path in given:
        if not path.exists():
            raise DataError(f"{path}: this file or folder does not exist.{_meant(path)}")
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            raise DataError(f"{path}: cannot be read (permission denied). Check its permissions.")
    library = Library(given)
    for path in given:
        if not any(view.files.results.is_relative_to(path.resolve()) for view in library.runs()):
            raise DataError(f"{path}: {_no_run(library, path)}")
    return library


def _meant(path: Path) -> str:
    """Return a suggestion for a path that does not exist."""
    folder = path.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return did_you_mean(path.name, names) or " Check the path."


def _no_run(library: Library, path: Path) -> str:
    if results := _results_next_to(path):
        return f"this file belongs to the run of {results}. Pass {results} instead."
    problems = (each for each in library.problems() if Path(each["file"]).is_relative_to(path.resolve()))
    problem = next((each["message"].rstrip(".") for each in problems), None)
    what = "no run is in this folder" if path.is_dir() else "this is not a file of rollouts"
    return (
        f"{what}{f' ({problem})' if problem else ''}. A run is a file x.jsonl with one rollout per line, with "
        "x_run.json or x_failures.jsonl next to it, as written by 'ng eval run --output x.jsonl'."
    )


def _results_next_to(path: Path) -> Path | None:
    """Return the results file of the run that a file belongs to, such as `x.jsonl` for `x_failures.jsonl`."""
    for results in path.parent.glob("*.jsonl") if path.is_file() else ():
        files = RunFiles(results=results)
        if path in (files.failures, files.materialized, files.record, files.metrics):
            return results
    return None
