"""The runs found in the given paths."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.control.registry import collections_here
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.viewer.discovery import Discovery, Found
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

    def problems(self) -> list[JsonObject]:
        """Return the problems of the last search, such as unreadable files (type `Problem` in api.ts)."""
        self._look()
        with self._lock:
            return [
                {"file": str(path), "line": None, "message": message} for path, message in self._discovery.problems
            ]

    def allows(self, path: Path) -> bool:
        """Return whether a file may be read, after following all links. See `Discovery.allows`."""
        return self._discovery.allows(path)

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
