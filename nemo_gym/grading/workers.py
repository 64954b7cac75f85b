"""A pool of worker processes that are killed when a job passes its deadline."""

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
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar, TypeVarTuple

from nemo_gym.grading import worker
from nemo_gym.paths import INSTALL_ROOT

START_LIMIT_S = 60.0
"""Timeout in seconds for starting a worker and importing a job's modules. It is long enough for a busy machine."""
MAX_WAITING = 10_000

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class WorkerFailed(RuntimeError):
    """An error for a job that ended without a result, although its function did not raise an exception."""


class WorkerTimedOut(WorkerFailed):
    """An error for a job that passed its deadline. Its worker was killed."""


class WorkerCrashed(WorkerFailed):
    """An error for a job whose worker process ended or ran out of memory."""


class WorkerNotStarted(WorkerFailed):
    """An error for a worker that did not start, or did not begin the job. The job is not at fault."""


class _IdleWorkerLost(WorkerNotStarted):
    """An error for a worker that ended after its previous job, before it began this one."""


class WorkersBusy(WorkerFailed):
    """An error for a job that was rejected because the pool's queue is full."""


class WorkerPool:
    """Up to `size` worker processes, each of which is killed when its job passes the deadline.

    Workers start with the first jobs, are reused, and end with this process, even if it is killed. `deadline_s` is the
    timeout of one job in seconds. The time to wait for a worker, to start it and to import modules does not count.
    `prepare` is called once in each new worker. `memory_limit_bytes` limits a worker's address space. If `max_waiting`
    jobs already wait, a further job raises `WorkersBusy`.

    A function must be importable by its name, and its arguments and result must be picklable. A worker shares no
    state with this process: do not pass sockets or handles.
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
        self._settings = {"prepare": prepare and _name_of(prepare), "memory_limit_bytes": memory_limit_bytes}
        self._places = threading.BoundedSemaphore(size + max_waiting)
        # A worker ends with the thread that started it, so these threads must live as long as the pool.
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="worker pool")
        self._workers = _Workers()
        weakref.finalize(self, self._workers.end_all)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts, deadline_s: float | None = None) -> T:
        """Return the result of `function(*args)`, or raise its exception.

        Raise `WorkerFailed` if there is no result. The job is at fault for `WorkerTimedOut` and `WorkerCrashed`, but
        not for `WorkerNotStarted` and `WorkersBusy`.
        """
        return await asyncio.wrap_future(self._submit(function, args, deadline_s))

    def run_blocking(self, function: Callable[[*Ts], T], *args: *Ts, deadline_s: float | None = None) -> T:
        """Do the same as `run`, but block the calling thread."""
        return self._submit(function, args, deadline_s).result()

    def close(self) -> None:
        """Kill the workers. Running jobs then raise `WorkerCrashed`. A later job starts new workers."""
        self._workers.end_all()

    def pids(self) -> list[int]:
        return [each.pid for each in self._workers.all]

    def _submit(self, function: Callable[..., T], args: tuple[object, ...], deadline_s: float | None) -> Future[T]:
        name, pickled = _name_of(function), pickle.dumps(args)
        if not self._places.acquire(blocking=False):
            raise WorkersBusy(f"{name}: too many jobs are waiting for {self.size} workers")
        limit_s = self.deadline_s if deadline_s is None else deadline_s
        future: Future[T] = self._threads.submit(_do, self._workers, self._settings, name, pickled, limit_s)
        places = self._places
        future.add_done_callback(lambda _: places.release())
        return future


class _Worker:
    """A worker process and the connection to it."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # `-P` keeps the script's folder off the path, because some of its modules shadow standard modules.
                [sys.executable, "-P", worker.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Create a process group, so that processes that a job starts are killed together with the worker.
                process_group=0,
            )
        self._connection = Connection(ours.detach())
        self._is_ready = False
        self._ending = threading.Lock()
        start = {"package": str(INSTALL_ROOT), "path": sys.path, "parent": os.getpid()}
        self._send(pickle.dumps({**settings, **start}))

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, pickled: bytes, deadline_s: float) -> Any:
        """Return the function's result or raise its exception. After `WorkerFailed`, this worker has ended."""
        outcome = self._begin(name, pickled, deadline_s)
        if outcome == worker.BEGUN:
            outcome = self._receive(deadline_s, f"{name} did not finish")
        result = self._receive(START_LIMIT_S, f"{name} did not give its result")
        if outcome == worker.OUT_OF_MEMORY:
            self.end()
            raise WorkerCrashed(f"{name} ran out of memory")
        answer = pickle.loads(result)
        if outcome == worker.RAISED:
            raise answer
        return answer

    def _begin(self, name: str, pickled: bytes, deadline_s: float) -> bytes:
        was_idle = self._is_ready
        try:
            if not self._is_ready:
                self._receive(START_LIMIT_S, f"a worker for {name} did not start")
                self._is_ready = True
            self._send(pickle.dumps((name, deadline_s)))
            self._send(pickled)
            return self._receive(START_LIMIT_S, f"{name} did not begin")
        except WorkerFailed as error:
            is_lost = was_idle and isinstance(error, WorkerCrashed)
            raise (_IdleWorkerLost if is_lost else WorkerNotStarted)(str(error)) from error

    def _send(self, message: bytes) -> None:
        # Ignore the error here: if the worker has died, the next read reports it.
        with contextlib.suppress(OSError):
            self._connection.send_bytes(message)

    def _receive(self, limit_s: float, failure: str) -> bytes:
        try:
            if self._connection.poll(limit_s):
                return self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            self.end()
            cause = _cause_of(self._process)
            raise WorkerCrashed(f"{failure}: its process ended ({cause}); see the log for its output") from error
        self.end()
        raise WorkerTimedOut(f"{failure} within {limit_s:g} s")

    def end(self) -> None:
        """Kill the process and every process that it started."""
        with self._ending:
            if self._process.returncode is not None:
                return
            # The process has not been waited for yet, so its id cannot have been reused.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


class _Workers:
    """The live workers of a pool. The idle worker that was used last is taken first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self.all: list[_Worker] = []

    def take(self, settings: Mapping[str, object]) -> _Worker:
        with self._lock:
            return self._idle.pop() if self._idle else self._started(settings)

    def replaced(self, ended: _Worker, settings: Mapping[str, object]) -> _Worker | None:
        """Replace a worker by a new one. Return None if the pool was closed, because it must not start another one."""
        with self._lock:
            if ended not in self.all:
                return None
            self.all.remove(ended)
            return self._started(settings)

    def _started(self, settings: Mapping[str, object]) -> _Worker:
        started = _Worker(settings)
        self.all.append(started)
        return started

    def give_back(self, used: _Worker) -> None:
        """Make a worker available for the next job, unless it was removed from the pool."""
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


def _do(workers: _Workers, settings: Mapping[str, object], name: str, pickled: bytes, deadline_s: float) -> Any:
    taken = workers.take(settings)
    try:
        try:
            return taken.call(name, pickled, deadline_s)
        except _IdleWorkerLost:
            # The function has not been called, so it cannot run twice.
            replacement = workers.replaced(taken, settings)
            if replacement is None:
                raise
            taken = replacement
            return taken.call(name, pickled, deadline_s)
    except WorkerFailed:
        workers.drop(taken)
        raise
    finally:
        workers.give_back(taken)


def _name_of(function: Callable[..., object]) -> str:
    """Return `module:function`. Raise `ValueError` if a worker could not import it by that name."""
    module, path = function.__module__, function.__qualname__
    if module == "__main__" or "<" in path:
        raise ValueError(f"{module}.{path} cannot be run in a worker: it must be importable by its name")
    found: object = sys.modules.get(module) or importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found != function:
        raise ValueError(f"{module}.{path} cannot be run in a worker: that name refers to another object")
    return f"{module}:{path}"


def _cause_of(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
