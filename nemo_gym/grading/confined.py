"""Run untrusted Python in a sandbox: no network, no host files, limited time, memory, processes and output."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from nemo_gym.errors import EnvironmentFailed
from nemo_gym.grading import check_calls, trials
from nemo_gym.sandbox.confinement.bubblewrap import Interpreter, joining, sandboxed
from nemo_gym.sandbox.confinement.cgroups import ControlGroup
from nemo_gym.sandbox.confinement.dialogue import GONE_S, Dialogue
from nemo_gym.sandbox.confinement.level import OWN_PROCESSES, SPARE_UIDS, Level, levels_to_try, refusal, unconfined

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

How = Literal["started", "finished", "failed", "out of time", "too much output", "not run"]

START_GRACE_S = 30.0
"""Seconds for the start and the reports of a sandbox, in addition to its trials. Enough for a busy machine."""
ESCAPED_BYTE = 6
"""The maximum number of bytes that one byte of output takes in a JSON string."""
REPORT_BYTES = 65_536
GIVEN_UP = "the server is shutting down, or the call was cancelled"


@dataclass(frozen=True)
class Limits:
    """The limits of one program.

    `memory_mb` limits each process and, if control groups are available, also all processes of the program together.
    """

    memory_mb: int = 1024
    processes: int = 32
    scratch_mb: int = 64


@dataclass(frozen=True)
class Program:
    """An untrusted program and its inputs. The sources run one after another in one module.

    If `function` is None, the program reads each input from stdin and prints the output. Otherwise the function is
    called: each line of an input is an argument as JSON, and the output is the returned value as JSON.
    """

    sources: Sequence[str]
    inputs: Sequence[str] = ()
    output_bytes: Sequence[int] = ()
    """The maximum size in bytes of the output for each input."""
    function: str | None = None
    check: str | None = None
    """Code that calls the function and contains assertions. It runs in a separate process that the program cannot
    reach. Arguments and results must be plain data. There is only one trial, and its output is the verdict."""
    check_preamble: str = ""
    """Code that runs before the check, in the same namespace."""


class Trial(NamedTuple):
    """The outcome of one run of a program. `error` is the end of its stderr."""

    how: How
    output: str = ""
    error: str = ""
    seconds: float = 0.0


@dataclass
class _Slot:
    """A user id and a control group that sandboxes use in succession, one sandbox at a time."""

    uid: int | None
    group: ControlGroup | None = None


class _NotStarted(Exception):
    """The error for a sandbox that did not start its program. The message is the stderr or another reason."""


class ConfinedPython:
    """A runner of programs in bubblewrap sandboxes, `size` at a time, each in its own thread.

    The first call finds out how far this machine can confine programs. If the machine cannot start a sandbox, calls
    raise `EnvironmentFailed`. But if `allow_unconfined` is set, programs run without a sandbox. Then only resource
    limits apply: programs run as the server's user, with access to this user's files and to the network.
    """

    def __init__(self, size: int, limits: Limits | None = None, *, allow_unconfined: bool = False) -> None:
        self.limits = limits or Limits()
        self.allow_unconfined = allow_unconfined
        self._size = size
        self._threads: ThreadPoolExecutor | None = None
        self._held: set[Dialogue] = set()
        self._slots: list[_Slot] = []
        self._made: list[_Slot] = []
        self._numbers = itertools.count()
        self._probing = asyncio.Lock()
        self._level: Level | None = None
        self._first_uid = random.randrange(len(SPARE_UIDS))

    async def level(self) -> Level:
        """Return how far programs are confined. The first call starts a sandbox to find this out."""
        async with self._probing:
            if self._level is None:
                self._level = await self._on_a_thread(self._probe)
                logger.info("untrusted code runs with: %s", self._level)
            return self._level

    async def run(self, program: Program, *, trial_s: float, total_s: float) -> list[Trial]:
        """Run a program with each of its inputs in one sandbox, and return one trial per input.

        A trial may take `trial_s` seconds, and all trials together `total_s`. After a timeout the remaining trials are
        "not run". Raise `EnvironmentFailed` if programs cannot be confined or the sandbox does not start.
        """
        level = await self.level()
        if not level.is_confined and not self.allow_unconfined:
            raise EnvironmentFailed(refusal(level))
        try:
            return await self._on_a_thread(lambda dialogue: self._try(dialogue, program, level, trial_s, total_s))
        except (_NotStarted, OSError) as error:
            raise EnvironmentFailed(f"A sandbox for a program could not be started: {error}.") from error

    def close(self) -> None:
        """End the running programs and remove the control groups."""
        for dialogue in list(self._held):
            dialogue.give_up()
        if self._threads is not None:
            # Do not wait: each thread ends with its program.
            self._threads.shutdown(wait=False)
        for slot in self._made:
            if slot.group:
                slot.group.close()
        self._threads, self._made, self._slots = None, [], []

    async def _on_a_thread(self, work: Callable[[Dialogue], _T]) -> _T:
        """Run `work` in a thread and return its result. On cancellation, kill the sandbox and wait for the thread."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="sandbox")
        dialogue = Dialogue()
        self._held.add(dialogue)
        working = self._threads.submit(work, dialogue)
        outcome = asyncio.wrap_future(working)
        # Retrieve the exception: after a cancellation no caller does, and asyncio would log a warning.
        outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait([outcome])
            return outcome.result()
        except asyncio.CancelledError:
            dialogue.give_up()
            if not working.cancel():
                await asyncio.wait([outcome], timeout=GONE_S)
            raise
        finally:
            self._held.discard(dialogue)

    def _probe(self, dialogue: Dialogue) -> Level:
        problem = None
        for level in levels_to_try():
            try:
                program = Program(["print(1)"], [""], [10])
                (ended,) = self._try(dialogue, program, level, START_GRACE_S, START_GRACE_S)
                if ended.output.strip() == "1":
                    return level
                problem = ended.error
            # Try the next level: on many machines, control groups are not allowed and raise an `OSError`.
            except (_NotStarted, OSError) as error:
                problem = str(error)
        return unconfined(problem)

    def _try(self, dialogue: Dialogue, program: Program, level: Level, trial_s: float, total_s: float) -> list[Trial]:
        """Run the program and block until it ends. Raise `OSError` if the sandbox cannot be set up."""
        if dialogue.is_given_up:
            raise _NotStarted(GIVEN_UP)
        slot = self._a_slot(level)
        with contextlib.ExitStack() as stack:
            scratch = "/tmp" if level.is_confined else stack.enter_context(tempfile.TemporaryDirectory())
            sent = _frame(self._job(program, level, slot, scratch, trial_s=trial_s, total_s=total_s))
            if program.check is not None:
                check, preamble = program.check, program.check_preamble
                sent += _frame({"check": check, "preamble": preamble, "function": program.function})
            try:
                said = dialogue.hold(
                    self._command(level, slot),
                    sent,
                    env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "HOME": scratch, "LANG": "C.UTF-8"},
                    most_bytes=_most_bytes(program),
                    within_s=total_s + START_GRACE_S,
                )
            finally:
                if slot.group:
                    slot.group.kill()
        reports = list(_reports(said.out))
        self._give_back(slot, is_sound=bool(reports) or dialogue.is_given_up)
        if dialogue.is_given_up:
            raise _NotStarted(GIVEN_UP)
        if not reports:
            late = f"it did not start within {total_s + START_GRACE_S:g} s" if said.is_late else "it ended at once"
            raise _NotStarted(said.errors.strip() or late)
        ended, wanted = reports[1:], len(program.inputs) if program.check is None else 1
        error = "" if ended and ended[-1].how == "out of time" else said.errors
        return [*ended, *[Trial("not run", error=error)] * (wanted - len(ended))]

    def _a_slot(self, level: Level) -> _Slot:
        # No lock is needed. Several threads share this list, but `pop` is atomic, so each slot goes to one thread.
        with contextlib.suppress(IndexError):
            return self._slots.pop()
        number = next(self._numbers)
        is_root = level.is_confined and os.geteuid() == 0
        slot = _Slot(SPARE_UIDS[(self._first_uid + number) % len(SPARE_UIDS)] if is_root else None)
        if level.has_groups:
            slot.group = ControlGroup(
                f"{id(self):x}-{number}",
                memory_mb=self.limits.memory_mb + self.limits.scratch_mb,
                processes=self.limits.processes + OWN_PROCESSES,
            )
        self._made.append(slot)
        return slot

    def _give_back(self, slot: _Slot, *, is_sound: bool) -> None:
        if is_sound and slot in self._made:
            self._slots.append(slot)
            return
        # The slot may be the cause of the failure, so the next program gets a new one.
        if slot.group:
            slot.group.close()
        with contextlib.suppress(ValueError):
            self._made.remove(slot)

    def _job(
        self, program: Program, level: Level, slot: _Slot, scratch: str, *, trial_s: float, total_s: float
    ) -> trials.Job:
        names = ["preamble.py"] * (len(program.sources) - 1) + ["answer.py"]
        return {
            "mode": "check" if program.check is not None else "call" if program.function else "stdin",
            "sources": list(zip(names, program.sources, strict=True)),
            "function": program.function or "",
            "inputs": list(program.inputs),
            "output_bytes": list(program.output_bytes),
            "trial_s": trial_s,
            "total_s": total_s,
            "memory_mb": self.limits.memory_mb,
            "processes": self.limits.processes,
            "scratch_mb": self.limits.scratch_mb,
            "uid": slot.uid,
            "is_alone": level.is_confined,
            "seccomp": level.seccomp(),
            "scratch": scratch,
        }

    def _command(self, level: Level, slot: _Slot) -> list[str]:
        python = Interpreter.base()
        if level.bwrap is None:
            return python.script(str(trials.__file__))
        mounts = ["--ro-bind", str(check_calls.__file__), f"/{Path(check_calls.__file__).name}"]
        command = sandboxed(
            level.bwrap, str(trials.__file__), python, scratch_mb=self.limits.scratch_mb, mounts=mounts
        )
        return joining(slot.group.join_files, command) if slot.group else command


def _most_bytes(program: Program) -> int:
    """Return the maximum size in bytes of the sandbox's reports, if the program's outputs are within their limits."""
    printed = program.output_bytes if program.check is None else [trials.PIPE_CHUNK]
    return REPORT_BYTES + sum(ESCAPED_BYTE * each + 2 * REPORT_BYTES for each in printed)


def _reports(said: bytes) -> Iterator[Trial]:
    """Yield one report for the start of the sandbox, then one per completed trial."""
    left = memoryview(said)
    while len(left) >= trials.HEADER_BYTES:
        size = int.from_bytes(left[: trials.HEADER_BYTES], "big")
        frame, left = left[trials.HEADER_BYTES :][:size], left[trials.HEADER_BYTES + size :]
        if len(frame) < size:
            return
        yield Trial(**json.loads(bytes(frame)))


def _frame(message: object) -> bytes:
    encoded = json.dumps(message).encode()
    return len(encoded).to_bytes(trials.HEADER_BYTES, "big") + encoded
