"""Run what may never end in processes that can be given up: a pool of killable workers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nemo_gym.grading import worker

START_LIMIT_S = 60.0
"""How long a worker may take to start and to import what a function needs, on a busy machine."""
MAX_WAITING = 10_000

T = TypeVar("T")


class WorkerFailed(RuntimeError):
    """A job brought no result, for a reason other than an exception of its own."""


class WorkerTimedOut(WorkerFailed):
    """A job had not finished at its deadline; its worker was killed."""


class WorkerCrashed(WorkerFailed):
    """A worker ended over a job, or ran out of memory with it."""


class WorkerNotStarted(WorkerFailed):
    """A worker could not start, or not import what it needs: no job is to blame for it."""


class WorkersBusy(WorkerFailed):
    """More jobs are waiting than the pool will hold."""


class WorkerPool:
    """Calls functions in up to `size` processes, each of which is killed when its job passes the deadline.

    Workers start with the first jobs, are reused, and end with this process, however it ends. `deadline_s` bounds
    one job in seconds, beginning when a worker begins with it: neither waiting, nor starting, nor importing counts.
    `prepare` is called once at a worker's start: to import and build what its jobs need. `memory_limit_bytes` bounds
    the address space of a worker. Of more than `max_waiting` jobs, the rest are refused (`WorkersBusy`).

    A function must be importable by its name, and its arguments and result must be picklable. Keep sockets and
    handles out of them; a worker shares nothing with this process.
    """

    def __init__(
        self,
        size: int,
        deadline_s: float,
        *,
        prepare: Callable[[], object] | None = None,
        memory_limit_bytes: int | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.size = size
        self.deadline_s = deadline_s
        self._settings = {
            "prepare": _name_of(prepare) if prepare else None,
            "memory_limit_bytes": memory_limit_bytes,
        }
        self._places = threading.BoundedSemaphore(size + max_waiting)
        # A worker dies with the thread that started it, so these threads live as long as the pool does.
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="worker pool")
        self._workers = _Workers()
        weakref.finalize(self, self._workers.end_all)

    async def run(self, function: Callable[..., T], *args: Any, deadline_s: float | None = None) -> T:
        """What `function(*args)` returns; whatever it raises is raised here.

        Raises a `WorkerFailed` where there is no result. The job is to blame for `WorkerTimedOut` and `WorkerCrashed`,
        but not for `WorkerNotStarted` and `WorkersBusy`.
        """
        return await asyncio.wrap_future(self._submit(function, args, deadline_s))

    def run_blocking(self, function: Callable[..., T], *args: Any, deadline_s: float | None = None) -> T:
        """The same, for threads."""
        return self._submit(function, args, deadline_s).result()

    def close(self) -> None:
        """Kill the workers. Jobs under way end as `WorkerCrashed`; a later job starts workers again."""
        self._workers.end_all()

    def pids(self) -> list[int]:
        """The processes that are there now."""
        return [each.pid for each in self._workers.all]

    def _submit(self, function: Callable[..., T], args: tuple[Any, ...], deadline_s: float | None) -> Future[T]:
        name, pickled = _name_of(function), pickle.dumps(args)
        if not self._places.acquire(blocking=False):
            raise WorkersBusy(f"{name}: too many jobs are waiting for {self.size} workers")
        limit_s = self.deadline_s if deadline_s is None else deadline_s
        future: Future[T] = self._threads.submit(_do, self._workers, self._settings, name, pickled, limit_s)
        places = self._places
        future.add_done_callback(lambda _: places.release())
        return future


class _Worker:
    """One process, and the connection to it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the file's folder must not be searched, its modules have names of the standard library's.
                [sys.executable, "-P", worker.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # A group of its own: what a job starts ends with its worker.
                process_group=0,
            )
        self._connection = Connection(ours.detach())
        self._is_ready = False
        self._ending = threading.Lock()
        self._send(pickle.dumps({**settings, "path": sys.path, "parent": os.getpid()}))

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, pickled: bytes, deadline_s: float) -> Any:
        """What the function returned; raises what it raised, or `WorkerFailed`, after which this worker is no more."""
        outcome = self._begin(name, pickled, deadline_s)
        if outcome == worker.BEGUN:
            outcome = self._receive(deadline_s, f"{name} did not finish")
        result = self._receive(START_LIMIT_S, f"{name} did not give its result")
        if outcome == worker.OUT_OF_MEMORY:
            self.end()
            raise WorkerCrashed(f"{name} ran out of memory")
        told = pickle.loads(result)
        if outcome == worker.RAISED:
            raise told
        return told

    def _begin(self, name: str, pickled: bytes, deadline_s: float) -> bytes:
        try:
            if not self._is_ready:
                self._receive(START_LIMIT_S, f"a worker for {name} did not start")
                self._is_ready = True
            self._send(pickle.dumps((name, deadline_s)))
            self._send(pickled)
            return self._receive(START_LIMIT_S, f"{name} did not begin")
        except WorkerFailed as error:
            raise WorkerNotStarted(str(error)) from error

    def _send(self, message: bytes) -> None:
        # Of a worker that is no more the next answer will tell.
        with contextlib.suppress(OSError):
            self._connection.send_bytes(message)

    def _receive(self, limit_s: float, failure: str) -> bytes:
        try:
            if self._connection.poll(limit_s):
                return self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            self.end()
            cause = _cause_of(self._process)
            raise WorkerCrashed(f"{failure}: its process ended ({cause}); the log has what it said") from error
        self.end()
        raise WorkerTimedOut(f"{failure} within {limit_s:g} s")

    def end(self) -> None:
        """Kill the process and what it has started."""
        with self._ending:
            if self._process.returncode is not None:
                return
            # Nobody has waited for it yet, so the number is still its own, whether it lives or not.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


class _Workers:
    """The workers of a pool: all that live, and those without a job, the last one used first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self.all: list[_Worker] = []

    def take(self, settings: dict[str, Any]) -> _Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            started = _Worker(settings)
            self.all.append(started)
            return started

    def give_back(self, used: _Worker) -> None:
        with self._lock:
            if used in self.all:
                self._idle.append(used)

    def drop(self, ended: _Worker) -> None:
        with self._lock:
            if ended in self.all:
                self.all.remove(ended)

    def end_all(self) -> None:
        with self._lock:
            workers, self.all, self._idle = self.all, [], []
        for each in workers:
            each.end()


def _do(workers: _Workers, settings: dict[str, Any], name: str, pickled: bytes, deadline_s: float) -> Any:
    taken = workers.take(settings)
    try:
        result = taken.call(name, pickled, deadline_s)
    except WorkerFailed:
        workers.drop(taken)
        raise
    except BaseException:
        workers.give_back(taken)
        raise
    workers.give_back(taken)
    return result


def _name_of(function: Callable[..., Any]) -> str:
    """`module:function`; raises `ValueError` where a worker could not find it by that."""
    module, path = function.__module__, function.__qualname__
    if module == "__main__" or "<" in path:
        raise ValueError(f"{module}.{path} cannot be run in a worker: it must be importable by its name")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found != function:
        raise ValueError(f"{module}.{path} cannot be run in a worker: that name means something else")
    return f"{module}:{path}"


def _cause_of(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
