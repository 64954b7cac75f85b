"""Count costly operations inside a process: JSON parsing, pydantic validations, tasks, connections.

counts.py copies this file as `sitecustomize.py` into a folder on the `PYTHONPATH` of the processes to be counted. Each
process keeps its counts in a memory-mapped file. Readers therefore see the current counts, and a killed process loses
none. A fork starts its own file.

JSON is counted in calls and bytes: `orjson.loads`, `json.loads`, `pydantic_core.from_json` and pydantic's own parser,
but not other packages' compiled parsers. A validation is a value that Python code passes to pydantic: a model,
`model_validate`, a `TypeAdapter`, a FastAPI parameter, or a model inside a validator. Nested models are not counted
separately. Every task and every outgoing connection of an event loop counts.
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
    """The counts of this process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.begin()

    def begin(self) -> None:
        """Start from zero in this process's own file."""
        size = CELL_BYTES * len(NAMES)
        path = os.path.join(self._folder, str(os.getpid()))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.ftruncate(file, size)
            self._cells = memoryview(mmap.mmap(file, size)).cast("Q")
        finally:
            os.close(file)

    def add(self, name: str, amount: int = 1) -> None:
        self._cells[NAMES.index(name)] += amount

    def parsed(self, text: Any) -> None:
        """Count one JSON text and its bytes."""
        self.add("json_parses")
        self.add("json_bytes", len(text) if isinstance(text, str) else memoryview(text).nbytes)


def read(folder: Path) -> dict[int, dict[str, int]]:
    """Return the current counts of every process by pid."""
    found = {}
    for path in folder.glob("[0-9]*"):
        cells = memoryview(path.read_bytes()).cast("Q")
        found[int(path.name)] = dict(zip(NAMES, cells, strict=True))
    return found


class OnPython:
    """Pydantic handler that counts validated Python values."""

    def on_enter(self, value: Any, **_: Any) -> None:
        counted.add("validations")


class OnJson:
    """Pydantic handler that counts parsed and validated JSON texts."""

    def on_enter(self, text: Any, **_: Any) -> None:
        counted.add("validations")
        counted.parsed(text)


class Plugin:
    """Pydantic plugin that supplies the handlers for each validator."""

    def new_schema_validator(self, *_: Any) -> tuple[OnPython, OnJson, None]:
        return OnPython(), OnJson(), None


def counting(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a JSON parser so that its calls are counted."""

    def parse_and_count(text: Any, *args: Any, **named: Any) -> Any:
        counted.parsed(text)
        return parse(text, *args, **named)

    return parse_and_count


def count_in(loop: type[Any], method: str, name: str) -> None:
    """Count the calls to a method of an event loop class."""
    original = getattr(loop, method)

    def count_and_call(self: Any, *args: Any, **named: Any) -> Any:
        counted.add(name)
        return original(self, *args, **named)

    setattr(loop, method, count_and_call)


def begin() -> None:
    """Start counting in this process and its forks."""
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
