"""The runs found in the given paths."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from nemo_gym.errors import DataError
from nemo_gym.rollouts.control.registry import collections_here
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.text import did_you_mean
from nemo_gym.viewer.discovery import Discovery, Found, Problem
from nemo_gym.viewer.index.indexer import Indexer
from nemo_gym.viewer.index.store import cache_folder, forget_unused
from nemo_gym.viewer.run_view import RunView

__all__ = ["Library", "RunView"]

LOOK_EVERY_S = 1.0
REST = 10.0
"""The pause after a search for runs, as a multiple of the search's duration."""
FINISH_S = 3600.0


class Library:
    """The runs in files and folders. Runs that appear later in a folder are found, too. Thread-safe."""

    def __init__(self, paths: Sequence[Path], cache: Path | None = None) -> None:
        """Look for runs in `paths`. The indexes are kept in `cache`, by default in the user's cache folder."""
        self.tokenizer: str | None = None
        """The tokenizer for the text of tokens; see `decoding.texts_of`."""
        self.paths = [path.resolve() for path in paths]
        self._discovery = Discovery(self.paths)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._cache = self._writable(cache or cache_folder())
        self._indexer = Indexer()
        self._lock = Lock()
        self._runs: dict[str, RunView] = {}
        self._looks_at = 0.0
        self._live: frozenset[Path] = frozenset()
        forget_unused(self._cache)
        for run in self.runs():
            run.refresh(wait_s=0.0)

    def runs(self) -> list[RunView]:
        """Return all runs, the latest first."""
        self._look()
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: (-run.began_at, run.name))

    def run(self, run_id: str) -> RunView:
        """Return a run. Raise `KeyError` if it does not exist, or no longer exists."""
        self._look()
        with self._lock:
            return self._runs[run_id]

    def problems(self) -> list[Problem]:
        """Return the problems of the last search, such as unreadable files."""
        self._look()
        with self._lock:
            return list(self._discovery.problems)

    def finish(self, timeout_s: float = FINISH_S) -> None:
        """Wait until all runs are indexed. Call this before reading all rollouts of a run."""
        until = time.monotonic() + timeout_s
        for run in self.runs():
            run.refresh(wait_s=max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Stop indexing, and delete the temporary folder if the viewer uses one."""
        self._indexer.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _look(self) -> None:
        with self._lock:
            began_at = time.monotonic()
            if began_at < self._looks_at:
                return
            self._live = frozenset(Path(os.path.realpath(collection.output)) for collection in collections_here())
            known = {(run.name, run.files.results): run for run in self._runs.values()}
            runs = {}
            for found in self._discovery.look():
                run = known.get(found) or self._view(found)
                run.is_live = found.results in self._live
                runs[run.id] = run
            self._runs = runs
            ended_at = time.monotonic()
            # Search rarely, because searching a large folder takes seconds, and all pages wait for the search.
            self._looks_at = ended_at + max(LOOK_EVERY_S, REST * (ended_at - began_at))

    def _view(self, found: Found) -> RunView:
        files = RunFiles(results=found.results)
        return RunView(found.name, files, self._cache, self._indexer, self._discovery.allows)

    def _writable(self, folder: Path) -> Path:
        """Create `folder` if it is missing, and return it.

        If it is not writable or belongs to another user, return a temporary folder, deleted when the viewer ends.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Check the owner, because another user could have created this folder if its parent is shared.
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK):
                return folder
        except OSError:
            pass
        self._temporary = tempfile.TemporaryDirectory(prefix="nemo-gym-viewer-")
        return Path(self._temporary.name)


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
