"""Run Python that nobody trusts, confined: no network, no files of ours, bounded time, memory, processes, output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nemo_gym.confinement.bubblewrap import Interpreter, joining, sandboxed
from nemo_gym.confinement.cgroups import ControlGroup, remove_left_behind
from nemo_gym.confinement.level import NOT_INSTALLED, OWN_PROCESSES, SPARE_UIDS, Level, cannot_start, refusal
from nemo_gym.errors import EnvironmentFailed
from nemo_gym.grading import check_calls, trials

logger = logging.getLogger(__name__)

How = Literal["finished", "failed", "out of time", "too much output", "not run"]

START_GRACE_S = 10.0
"""What a sandbox may take to start and to report, on a busy machine, beside the time of its trials."""
ESCAPED_BYTE = 6
"""A byte of output is at most so many as a JSON text."""
REPORT_BYTES = 65_536


@dataclass(frozen=True)
class Limits:
    """What one program may use. `memory_mb` bounds each process, and all of them where control groups can be made."""

    memory_mb: int = 1024
    processes: int = 32
    scratch_mb: int = 64


@dataclass(frozen=True)
class Check:
    """Code that calls the program's function and asserts; it runs in a process of its own, out of the program's reach.

    `preamble` runs before it, under the names that it defines; arguments and results must be plain data.
    """

    code: str
    preamble: str = ""


@dataclass(frozen=True)
class Program:
    """What is tried: its sources, run one after the other in one module, and what is done with it.

    Without a `function` it reads each input from stdin. With one, each line of an input is an argument as JSON, and
    the output is the result as JSON. With a `check` there is one trial, and its output is the verdict.
    """

    sources: Sequence[str]
    inputs: Sequence[str] = ()
    output_bytes: Sequence[int] = ()
    """For each input, how much output is too much."""
    function: str | None = None
    check: Check | None = None

    @property
    def trials(self) -> int:
        return 1 if self.check else len(self.inputs)


class Trial(NamedTuple):
    """How one run of a program ended; `error` is the end of what it wrote to stderr."""

    how: How
    output: str = ""
    error: str = ""
    seconds: float = 0.0


class CheckVerdict(NamedTuple):
    """What a check says of a program."""

    verdict: Literal["passed", "wrong", "error"]
    why: str

    @classmethod
    def of(cls, trial: Trial) -> CheckVerdict:
        """The verdict of a trial that finished."""
        told = json.loads(trial.output)
        return cls(told["verdict"], told["why"])


@dataclass
class _Slot:
    """A place for one sandbox: the user it runs as, and its control group."""

    uid: int | None
    group: ControlGroup | None = None


class ConfinedPython:
    """Tries programs in sandboxes of bubblewrap, `size` at a time.

    How far they can be confined is found out once. Where there is no sandbox, programs are refused with
    `EnvironmentFailed`, unless `allow_unconfined`: then they run with resource limits only, as this user, with its
    files and its network.
    """

    def __init__(self, size: int, limits: Limits | None = None, *, allow_unconfined: bool = False) -> None:
        self.limits = limits or Limits()
        self.allow_unconfined = allow_unconfined
        self._gate = asyncio.Semaphore(size)
        self._slots: list[_Slot] = []
        self._made: list[_Slot] = []
        self._probing = asyncio.Lock()
        self._level: Level | None = None
        self._first_uid = random.randrange(len(SPARE_UIDS))

    async def level(self) -> Level:
        """How far programs are confined; found out by starting a sandbox, once."""
        async with self._probing:
            if self._level is None:
                self._level = await self._probe()
                logger.info("untrusted code runs with: %s", self._level)
            return self._level

    async def run(self, program: Program, *, trial_s: float, total_s: float) -> list[Trial]:
        """Try a program with each of its inputs, in one sandbox; as many trials as it has inputs.

        A trial ends at `trial_s` seconds, and with it the whole run; all together have `total_s`. What has not been
        run then is "not run". Raises `EnvironmentFailed` where programs cannot be confined.
        """
        level = await self.level()
        if not level.is_confined and not self.allow_unconfined:
            raise EnvironmentFailed(refusal(level))
        async with self._gate:
            slot = self._slots.pop() if self._slots else self._new_slot(level)
            try:
                return await self._run(program, level, slot, trial_s, total_s)
            finally:
                self._slots.append(slot)

    def close(self) -> None:
        """Remove the control groups. Programs under way end with the tasks that wait for them."""
        for slot in self._made:
            if slot.group:
                slot.group.close()
        self._made, self._slots = [], []

    def _new_slot(self, level: Level) -> _Slot:
        number = len(self._made)
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

    async def _probe(self) -> Level:
        if shutil.which("bwrap") is None:
            return Level(False, False, NOT_INSTALLED)
        await asyncio.to_thread(remove_left_behind)
        problem = ""
        for has_groups in (True, False):
            level = Level(True, has_groups)
            try:
                slot = self._new_slot(level)
            except OSError:
                continue
            ended = await self._run(Program(["print(1)"], [""], [10]), level, slot, START_GRACE_S, START_GRACE_S)
            if ended[0].output.strip() == "1":
                self._slots.append(slot)
                return level
            problem = ended[0].error
        return cannot_start(problem)

    async def _run(self, program: Program, level: Level, slot: _Slot, trial_s: float, total_s: float) -> list[Trial]:
        with contextlib.ExitStack() as stack:
            scratch = "/tmp" if level.is_confined else stack.enter_context(tempfile.TemporaryDirectory())
            command = self._command(level, slot)
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Of a server that was told to go each child would hear too.
                start_new_session=True,
                env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "HOME": scratch, "LANG": "C.UTF-8"},
                cwd="/",
            )
            job = self._job(program, level, slot, scratch) | {"trial_s": trial_s, "total_s": total_s}
            try:
                return await _reports(process, program, job, total_s + START_GRACE_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await _gone(process)
                if slot.group:
                    await asyncio.to_thread(slot.group.kill)

    def _job(self, program: Program, level: Level, slot: _Slot, scratch: str) -> dict[str, Any]:
        names = ["preamble.py"] * (len(program.sources) - 1) + ["answer.py"]
        return {
            "mode": "check" if program.check else "call" if program.function else "stdin",
            "sources": list(zip(names, program.sources, strict=True)),
            "function": program.function,
            "inputs": list(program.inputs),
            "output_bytes": list(program.output_bytes),
            "limits": asdict(self.limits),
            "uid": slot.uid,
            "is_alone": level.is_confined,
            "scratch": scratch,
        }

    def _command(self, level: Level, slot: _Slot) -> list[str]:
        python = Interpreter.base()
        if not level.is_confined:
            return python.script(str(trials.__file__))
        beside = ["--ro-bind", str(check_calls.__file__), f"/{Path(check_calls.__file__).name}"]
        command = sandboxed(str(trials.__file__), python, scratch_mb=self.limits.scratch_mb, mounts=beside)
        return joining(slot.group.join_files, command) if slot.group else command


async def _reports(
    process: asyncio.subprocess.Process, program: Program, job: dict[str, Any], deadline_s: float
) -> list[Trial]:
    ended: list[Trial] = []
    assert process.stdin is not None
    # Nobody waits until it has been taken: what is not is dropped with the process.
    process.stdin.write(_frame(job))
    if program.check:
        check = program.check
        process.stdin.write(_frame({"check": check.code, "preamble": check.preamble, "function": program.function}))
    longest = ESCAPED_BYTE * max(program.output_bytes, default=0) + 2 * REPORT_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline_s):
            async for trial in _trials(process, longest):
                ended.append(trial)
                if len(ended) == program.trials:
                    return ended
    error = "" if ended and ended[-1].how == "out of time" else await _last_words(process)
    return [*ended, *[Trial("not run", error=error)] * (program.trials - len(ended))]


async def _trials(process: asyncio.subprocess.Process, longest: int) -> AsyncIterator[Trial]:
    """The reports of the trials, until the process says nothing more, or more than it may."""
    assert process.stdout is not None
    while True:
        try:
            size = int.from_bytes(await process.stdout.readexactly(trials.HEADER_BYTES), "big")
            if size > longest:
                return
            report = json.loads(await process.stdout.readexactly(size))
        except asyncio.IncompleteReadError:
            return
        yield Trial(report["how"], report["output"], report["error"], report["seconds"])


async def _last_words(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            return (await process.stderr.read(check_calls.ERROR_TAIL)).decode(errors="replace")
    return ""


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that has been killed; of what it left in its pipes there is little."""
    assert process.stdin is not None
    process.stdin.close()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        await pipe.read()
    await process.wait()


def _frame(message: Any) -> bytes:
    told = json.dumps(message).encode()
    return len(told).to_bytes(trials.HEADER_BYTES, "big") + told
