"""A registry of this user's running collections on this machine, with one file for each process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ValidationError

from nemo_gym.calls.running import beginning_of, is_alive, record_dir, write_record
from nemo_gym.rollouts.job import RunFiles

SHORTEST_ID = 4
LONGEST_ADDRESS = 100
"""The longest socket path to use, in bytes. Linux allows 107 and macOS 103."""


class Collection(BaseModel):
    """A process that collects rollouts into one output."""

    run_id: str
    """The run's id. It stays the same when the run is resumed."""
    output: Path
    """The absolute path of the scored rollouts."""
    pid: int
    started_at: float
    """The start time of the collection, in seconds since the epoch."""
    folder: Path
    """The folder of this record and of its socket."""
    beginning: int | None = None
    """The start time of the process, as returned by `beginning_of`."""

    @classmethod
    def of(cls, files: RunFiles, run_id: str, folder: Path) -> Self:
        """Return the record of a collection that this process runs."""
        output = files.results.absolute()
        pid = os.getpid()
        beginning = beginning_of(pid)
        return cls(run_id=run_id, output=output, pid=pid, started_at=time.time(), folder=folder, beginning=beginning)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.run_id[:8]}-{self.pid}.json"

    @property
    def socket(self) -> Path:
        """The socket on which the collection listens once its rollouts start."""
        return self.path.with_suffix(".sock")

    @property
    def files(self) -> RunFiles:
        return RunFiles(results=self.output)

    @property
    def is_alive(self) -> bool:
        """Whether the process still exists."""
        return is_alive(self.pid, self.beginning)

    @property
    def is_running(self) -> bool:
        """Whether the process still exists and has not ended this collection."""
        return self.is_alive and self.path.exists()

    def remove(self) -> None:
        """Remove the record and the socket."""
        self.path.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)

    def matches(self, name: str) -> bool:
        """Return whether `name` refers to this collection: its run id, a prefix of the id, or one of its files."""
        if len(name) >= SHORTEST_ID and self.run_id.startswith(name):
            return True
        # `x` and `x_run.json` name the run of `x.jsonl`, too.
        path = Path(name).absolute()
        files = self.files
        named = {self.output, self.output.with_suffix(""), files.record, files.failures, files.materialized}
        return path in named or _same_file(path, self.output)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


@contextlib.contextmanager
def registered(files: RunFiles, run_id: str) -> Iterator[Collection | None]:
    """Register this process's collection until the `with` block ends. Yield None if there is no place for a record."""
    folder = _folder()
    collection = Collection.of(files, run_id, folder) if folder else None
    if collection is None or not write_record(collection.path, collection, "'ng eval ps' does not list this run"):
        yield None
        return
    try:
        yield collection
    finally:
        collection.remove()


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yield a short address of the socket at `path`, because the system may reject long paths."""
    if len(os.fsencode(path)) <= LONGEST_ADDRESS or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def collections_here() -> list[Collection]:
    """Return the collections that run now, oldest first. Remove the records of processes that no longer exist."""
    found = []
    folder = _folder()
    for path in folder.glob("*.json") if folder else ():
        with contextlib.suppress(OSError, ValidationError):
            collection = Collection.model_validate_json(path.read_bytes())
            if collection.path != path:
                continue
            if collection.is_alive:
                found.append(collection)
            else:
                collection.remove()
    return sorted(found, key=lambda each: each.started_at)


def _folder() -> Path | None:
    records = record_dir()
    if records is None:
        return None
    folder = records / "collections"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder
