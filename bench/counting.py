"""What a process does that costs time, counted inside it: JSON parsed, pydantic validations, tasks, connections.

counts.py copies this file as `sitecustomize.py` into a folder on the `PYTHONPATH` of the processes that are to count.
Each of them keeps its counts in a file of its own that is mapped into memory, so whoever reads that file sees them as
they are, and a process that is killed loses none. A fork begins a file of its own.

Counted are `orjson.loads`, `json.loads`, `pydantic_core.from_json` and pydantic's own reading of JSON, by bytes; each
time that Python code has pydantic check a value (a model made, `model_validate`, a `TypeAdapter`, a FastAPI parameter,
a model inside a validator's own code), but not the models within that value, which pydantic checks by itself; every
task of an event loop; and every connection that an event loop opens. Not counted is JSON that other code parses, such
as a package's own compiled parser.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER_ENV_VAR = "BENCH_COUNTS"
NAMES = ("json_parses", "json_bytes", "validations", "tasks", "connections")
CELL_BYTES = 8


class Cells:
    """This process's counts."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.begin()

    def begin(self) -> None:
        """Begin at nothing, in the file of this process."""
        size = CELL_BYTES * len(NAMES)
        path = os.path.join(self._folder, str(os.getpid()))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.ftruncate(file, size)
            self._cells = memoryview(mmap.mmap(file, size)).cast("Q")
        finally:
            os.close(file)

    def add(self, name: str, amount: int = 1) -> None:
        """Count."""
        self._cells[NAMES.index(name)] += amount

    def parsed(self, text: Any) -> None:
        """Count one parse of a JSON text."""
        self.add("json_parses")
        self.add("json_bytes", len(text) if isinstance(text, str) else memoryview(text).nbytes)


def read(folder: Path) -> dict[int, dict[str, int]]:
    """The counts of every process so far, by its pid."""
    found = {}
    for path in folder.glob("[0-9]*"):
        cells = memoryview(path.read_bytes()).cast("Q")
        found[int(path.name)] = dict(zip(NAMES, cells, strict=True))
    return found


class OnPython:
    """Hears of each value that is checked."""

    def on_enter(self, value: Any, **_: Any) -> None:
        counted.add("validations")


class OnJson:
    """Hears of each JSON text that is parsed and checked."""

    def on_enter(self, text: Any, **_: Any) -> None:
        counted.add("validations")
        counted.parsed(text)


class Plugin:
    """What pydantic asks for the listeners of each of its validators."""

    def new_schema_validator(self, *_: Any) -> tuple[OnPython, OnJson, None]:
        return OnPython(), OnJson(), None


def counting(parse: Callable[..., Any]) -> Callable[..., Any]:
    """A parser of JSON that counts."""

    def parse_and_count(text: Any, *args: Any, **named: Any) -> Any:
        counted.parsed(text)
        return parse(text, *args, **named)

    return parse_and_count


def count_in(loop: type[Any], method: str, name: str) -> None:
    """Count the calls of a method of an event loop."""
    original = getattr(loop, method)

    def count_and_call(self: Any, *args: Any, **named: Any) -> Any:
        counted.add(name)
        return original(self, *args, **named)

    setattr(loop, method, count_and_call)


def begin() -> None:
    """Count from here on in this process and in what it forks."""
    import orjson
    import pydantic_core
    import uvloop

    orjson.loads = counting(orjson.loads)
    json.loads = counting(json.loads)
    pydantic_core.from_json = counting(pydantic_core.from_json)
    for loop in (uvloop.Loop, asyncio.BaseEventLoop):
        count_in(loop, "create_task", "tasks")
        count_in(loop, "create_connection", "connections")
    for loop in (uvloop.Loop, asyncio.SelectorEventLoop):
        count_in(loop, "create_unix_connection", "connections")
    os.register_at_fork(after_in_child=counted.begin)


if __name__ == "sitecustomize":
    counted = Cells(os.environ[FOLDER_ENV_VAR])
    plugin = Plugin()
    begin()
