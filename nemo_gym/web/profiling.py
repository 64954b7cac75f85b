"""Profiles of a server's process, written to files for profile viewers."""

from __future__ import annotations

import cProfile
import importlib
import pstats
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from fastapi import FastAPI, Response
from pydantic import BaseModel

from nemo_gym import paths


class ProfilingMiddlewareConfig(BaseModel):
    """Options for profiling servers: whether they are profiled, and the folder for the profiles."""

    profiling_enabled: bool = False
    profiling_results_dirpath: Path | None = None
    """The folder for the servers' profiles (default: `results/profiling`), relative to the working directory."""


class Profiler:
    """A profiler that measures from `start` to `stop`, or within a `with` block, and then writes the profile.

    If yappi is installed, the profile has the CPU time of all threads and distinguishes coroutines. Otherwise it has
    the time of the thread that started the profiler.
    """

    def __init__(self, name: str, base_profile_dir: str | Path, required_str: str | None = None) -> None:
        """With `required_str`, the table in `<name>.txt` lists only functions whose file or name contains it."""
        self.name = name
        self.base_profile_dir = Path(base_profile_dir)
        self.required_str = required_str
        self._engine = _engine()

    def start(self) -> None:
        self._engine.clear()
        self._engine.start()

    def stop(self) -> None:
        self._engine.stop()
        self._write()

    def dump(self) -> Path:
        """Write the profile since `start` and continue measuring. Return the file, which is in `pstats` format."""
        self._engine.stop()
        try:
            return self._write()
        finally:
            self._engine.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write(self) -> Path:
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)
        path = self.base_profile_dir / f"{self.name}.prof"
        stats = self._engine.stats()
        stats.dump_stats(path)
        with path.with_suffix(".txt").open("w", encoding="utf-8") as table:
            # Redirect the table to the file, because `print_stats` prints to the attribute `stream`.
            stats.stream = table  # type: ignore[attr-defined]
            stats.sort_stats("cumulative").print_stats(*([self.required_str] if self.required_str else []))
        return path


class _Engine(NamedTuple):
    """The functions of the installed profiler, yappi or else cProfile."""

    clear: Callable[[], object]
    start: Callable[[], object]
    stop: Callable[[], object]
    stats: Callable[[], pstats.Stats]


def _engine() -> _Engine:
    try:
        yappi = importlib.import_module("yappi")
    except ModuleNotFoundError:
        profile = cProfile.Profile()
        return _Engine(profile.clear, profile.enable, profile.disable, lambda: pstats.Stats(profile))

    def clear() -> None:
        yappi.clear_stats()
        yappi.set_clock_type("cpu")

    return _Engine(clear, yappi.start, yappi.stop, lambda: yappi.convert2pstats(yappi.get_func_stats()))


def add_profiling(app: FastAPI, name: str, config: ProfilingMiddlewareConfig) -> None:
    """Profile an app from its startup to its shutdown. `GET /stats` writes the profile so far."""
    if not config.profiling_enabled:
        return
    folder = (config.profiling_results_dirpath or Path("results", "profiling")).expanduser()
    profiler = Profiler(name, paths.working_dir() / folder)
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def profiled(app: FastAPI) -> AsyncIterator[Any]:
        with profiler:
            async with lifespan(app) as state:
                yield state

    async def write_stats() -> Response:
        profiler.dump()
        return Response()

    app.router.lifespan_context = profiled
    app.get("/stats", include_in_schema=False)(write_stats)
