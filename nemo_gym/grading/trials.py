"""The script that runs inside the sandbox of `ConfinedPython`: it runs a program in child processes.

It imports only the standard library and `check_calls.py`. It reads one framed job from descriptor 0. It writes a
framed report at its start and one per trial to descriptor 1. A check follows the job in a second frame. That frame is
read after the program has been forked, so the program can access neither the check nor the reports.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import site
import struct
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, NoReturn, TypedDict

if __name__ == "__main__":
    # Add this script's folder to the path only for this import, because the program must not import from it.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from check_calls import ERROR_TAIL, PROGRAM, Pipes, answer_calls, verdict  # type: ignore[import-not-found]

    sys.path.pop()
    # Python was started without the module `site`, which would add installed packages to the path. But programs expect
    # the builtins that `site` defines, such as `exit`.
    site.setquit()
    site.setcopyright()
    site.sethelper()
else:
    from nemo_gym.grading.check_calls import ERROR_TAIL, PROGRAM, Pipes, answer_calls, verdict

MEBIBYTE = 2**20
HEADER_BYTES = 8
PIPE_CHUNK = 65_536
POLL_S = 0.005
OPEN_FILES = 64
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
SECCOMP_MODE_FILTER, SECCOMP_STEP_BYTES = 2, 8

STARTED, FINISHED, FAILED = "started", "finished", "failed"
OUT_OF_TIME, TOO_MUCH_OUTPUT = "out of time", "too much output"

FUNCTION_PRELUDE = """\
from typing import *
from collections import *
from bisect import *
from functools import *
from heapq import *
from itertools import *
import bisect, collections, functools, heapq, itertools, math, random, re, string, typing
"""
"""Imports that run before a tested function, because websites that publish programming problems add them, too."""


class Job(TypedDict):
    """A program, its inputs and its limits."""

    mode: Literal["stdin", "call", "check"]
    sources: list[tuple[str, str]]
    """The file name and the code of each part."""
    function: str
    inputs: list[str]
    output_bytes: list[int]
    trial_s: float
    total_s: float
    memory_mb: int
    processes: int
    scratch_mb: int
    uid: int | None
    is_alone: bool
    """Whether the sandbox has its own PID namespace."""
    seccomp: str | None
    """The seccomp filter, as hexadecimal digits."""
    scratch: str


class Report(TypedDict):
    """The outcome of one trial."""

    how: str
    output: str
    error: str
    seconds: float


class Child(NamedTuple):
    """A child process, and this process's ends of its output pipes."""

    pid: int
    output: int
    errors: int


def main() -> None:
    """Read a job, run its program and write the reports."""
    sys.argv[:] = ["answer.py"]
    job = json.loads(_read_frame())
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Make this process not dumpable, so that processes of the same user cannot read its memory or descriptors.
    _prctl(PR_SET_DUMPABLE, 0)
    # Outside a PID namespace, `_sweep` would kill unrelated processes of the user.
    if job["is_alone"] and os.getpid() != 1:
        raise SystemExit(
            "this script must be process 1 of a PID namespace, because it kills all other processes in it"
        )
    # Report the start, so that `ConfinedPython` attributes any later failure to the program, not to the sandbox.
    _write_frame({"how": STARTED, "output": "", "error": "", "seconds": 0.0})
    if job["mode"] == "check":
        _write_frame(_checked(job))
        return
    over = time.monotonic() + job["total_s"]
    for number, text in enumerate(job["inputs"]):
        job["trial_s"] = min(job["trial_s"], max(over - time.monotonic(), 0.0))
        report = _tried(job, number, text)
        _write_frame(report)
        if report["how"] == OUT_OF_TIME:
            return


def _tried(job: Job, number: int, text: str) -> Report:
    began = time.monotonic()
    as_program = job["mode"] == "stdin"

    def program(output: int) -> None:
        if as_program:
            os.dup2(output, 1)
            _fresh_streams()
            _execute(job["sources"], _module("__main__"))
        else:
            arguments = [json.loads(line) for line in text.split("\n") if line.strip()]
            value = _function(job)(*arguments)
            _write_all(output, json.dumps(value).encode())

    child = _start(job, f"trial-{number}", program, text.encode() if as_program else b"")
    return _watched(job, [child.pid], child, job["output_bytes"][number], began)


def _checked(job: Job) -> Report:
    began = time.monotonic()
    pipes = Pipes(*os.pipe(), *os.pipe())

    def candidate(_: int) -> None:
        _keep_only(pipes.calls_read, pipes.answers_write)
        answer_calls(lambda: _function(job), pipes.calls_read, pipes.answers_write)

    player = _start(job, "candidate", candidate, keep=pipes)
    check = json.loads(_read_frame())

    def checker(output: int) -> None:
        os.dup2(1, 2)
        _keep_only(output, pipes.calls_write, pipes.answers_read)
        _write_all(output, json.dumps(verdict(check, pipes)).encode())

    # Make the check's process not dumpable, so that the program cannot read its memory.
    judge = _start(job, "check", checker, keep=pipes, dumpable=0)
    for end in pipes:
        os.close(end)
    os.close(judge.errors)
    watched = Child(judge.pid, judge.output, player.errors)
    return _watched(job, [judge.pid, player.pid], watched, PIPE_CHUNK, began)


def _start(
    job: Job,
    folder: str,
    act: Callable[[int], None],
    stdin: bytes = b"",
    *,
    keep: tuple[int, ...] = (),
    dumpable: int = 1,
) -> Child:
    output_read, output_write = os.pipe()
    errors_read, errors_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            _redirect(stdin, errors_write)
            _keep_only(0, 1, 2, output_write, *keep)
            _limit(job, folder)
            _prctl(PR_SET_DUMPABLE, dumpable)
            act(output_write)
            status = 0
        except SystemExit as leaving:
            status = _status_of(leaving)
        except BaseException:  # noqa: BLE001 - printed to stderr, as an interpreter does
            sys.excepthook(*sys.exc_info())
        finally:
            _leave(status)
    os.close(output_write)
    os.close(errors_write)
    return Child(pid, output_read, errors_read)


def _redirect(stdin: bytes, errors: int) -> None:
    given = os.memfd_create("stdin") if stdin else os.open(os.devnull, os.O_RDONLY)
    if stdin:
        _write_all(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors, 2)
    _fresh_streams()


def _fresh_streams() -> None:
    streams = {
        "stdin": open(0, encoding="utf-8", errors="replace", closefd=False),  # noqa: SIM115 - for the process's life
        "stdout": open(1, "w", encoding="utf-8", errors="replace", closefd=False),  # noqa: SIM115
        "stderr": open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False),  # noqa: SIM115
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _keep_only(*descriptors: int) -> None:
    kept = sorted({0, 1, 2, *descriptors})
    for before, after in zip(kept, [*kept[1:], 65_536], strict=True):
        os.closerange(before + 1, after)


def _limit(job: Job, folder: str) -> None:
    limits = {
        resource.RLIMIT_AS: job["memory_mb"] * MEBIBYTE,
        resource.RLIMIT_FSIZE: job["scratch_mb"] * MEBIBYTE,
        resource.RLIMIT_CPU: int(job["trial_s"]) + 2,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if job["is_alone"]:
        # Set this limit only in a PID namespace. Elsewhere it counts all processes of the user, so the limit would be
        # reached at once.
        limits[resource.RLIMIT_NPROC] = job["processes"]
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))
    os.nice(5)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    if job["uid"] is not None:
        os.setgroups([])
        os.setresgid(job["uid"], job["uid"], job["uid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    if job["seccomp"]:
        _filter_calls(bytes.fromhex(job["seccomp"]))
    home = os.path.join(job["scratch"], folder)
    os.mkdir(home)
    os.chdir(home)


def _filter_calls(program: bytes) -> None:
    """Install a seccomp filter. All descendants of this process inherit it."""
    steps = ctypes.create_string_buffer(program, len(program))
    about = struct.pack("HP", len(program) // SECCOMP_STEP_BYTES, ctypes.addressof(steps))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, about, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the seccomp filter cannot be installed")


def _module(name: str) -> dict[str, object]:
    """Create a module, and return its names."""
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    return module.__dict__


def _execute(sources: Iterable[tuple[str, str]], names: dict[str, object]) -> None:
    for file, source in sources:
        exec(compile(source, file, "exec", dont_inherit=True), names)


def _function(job: Job) -> Callable[..., object]:
    names, wanted = _module(PROGRAM), job["function"]
    _execute([("<prelude>", FUNCTION_PRELUDE)], names)
    # The prelude also defines names that problems use for their functions, such as `merge` and `compress`.
    imported = names.get(wanted)
    _execute(job["sources"], names)
    found, solution = names.get(wanted), names.get("Solution")
    if found is imported:
        found = None
    if found is None and isinstance(solution, type):
        found = getattr(solution(), wanted, None)
    if not callable(found):
        raise NameError(f"the program does not define the function '{wanted}'")
    return found


def _watched(job: Job, pids: list[int], child: Child, output_bytes: int, began: float) -> Report:
    """Read a child's output until the child exits or a limit is exceeded. Then kill the processes that remain."""
    how, output, errors = FINISHED, bytearray(), bytearray()
    deadline, status = began + job["trial_s"], None
    poll = select.poll()
    for end in (child.output, child.errors):
        os.set_blocking(end, False)
        poll.register(end, select.POLLIN)
    while status is None:
        if time.monotonic() > deadline:
            how = OUT_OF_TIME
            break
        # When the child ends, its pipes usually close, which ends this wait. Limit the wait, because grandchildren
        # might keep the pipes open.
        poll.poll(POLL_S * 1000)
        for end, into, most in ((child.output, output, output_bytes + 1), (child.errors, errors, None)):
            if not _drain(end, into, most):
                with contextlib.suppress(KeyError):
                    poll.unregister(end)
        if len(output) > output_bytes:
            how = TOO_MUCH_OUTPUT
            break
        done, ended = os.waitpid(child.pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(ended) if done else None
    _sweep(job, pids)
    _drain(child.output, output, output_bytes + 1)
    _drain(child.errors, errors, None)
    if how == FINISHED and len(output) > output_bytes:
        how = TOO_MUCH_OUTPUT
    elif how == FINISHED and status != 0:
        how = OUT_OF_TIME if status == -signal.SIGXCPU else FAILED
    for end in (child.output, child.errors):
        os.close(end)
    return {
        "how": how,
        "output": bytes(output).decode(errors="replace"),
        "error": bytes(errors).decode(errors="replace"),
        "seconds": time.monotonic() - began,
    }


def _drain(end: int, into: bytearray, most: int | None) -> bool:
    """Read the available output. Return False at the end of the pipe.

    Stop when `into` has `most` bytes. If `most` is None, keep only the last `ERROR_TAIL` bytes.
    """
    for _ in range(64):
        if most is not None and len(into) >= most:
            return True
        try:
            chunk = os.read(end, PIPE_CHUNK if most is None else min(PIPE_CHUNK, most - len(into)))
        except BlockingIOError:
            return True
        if not chunk:
            return False
        into += chunk
        if most is None:
            del into[:-ERROR_TAIL]
    return True


def _sweep(job: Job, pids: list[int]) -> None:
    """Kill the children's process groups and, in a PID namespace, all other processes. Wait until they have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    if job["is_alone"]:
        # The PID -1 means every other process of the namespace. Orphans become children of this process, which waits
        # for them below.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while job["is_alone"] or pids:
            os.waitpid(-1 if job["is_alone"] else pids.pop(), 0)


def _leave(status: int) -> NoReturn:
    with contextlib.suppress(BaseException):
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 - incomplete output is a failure of the program
            status = status or 1
    os._exit(status)


def _status_of(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    sys.stderr.write(f"{leaving.code}\n")
    return 1


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _read_frame() -> bytes:
    size = int.from_bytes(b"".join(_read_exactly(HEADER_BYTES)), "big")
    return b"".join(_read_exactly(size))


def _read_exactly(count: int) -> Iterator[bytes]:
    while count:
        chunk = os.read(0, min(count, MEBIBYTE))
        if not chunk:
            raise SystemExit("the input ended before the job was complete")
        count -= len(chunk)
        yield chunk


def _write_frame(report: Report) -> None:
    message = json.dumps(report).encode()
    _write_all(1, len(message).to_bytes(HEADER_BYTES, "big") + message)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


if __name__ == "__main__":
    main()
    # Exit without Python's cleanup, which takes time and is not needed after the reports are written.
    os._exit(0)
