"""The readiness probe of a new sandbox: a command that must succeed once, or several times in a row."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.sandbox.providers.base import LOST, SandboxCreateVerificationError, SandboxExecResult

PAUSE_S = 0.2
"""Seconds between a failed attempt and the next one."""
SHOWN = 500


class ProbeConfig(BaseModel):
    """Options of the readiness probe. Without a `command`, a sandbox is ready when it has started."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    command: str | None = None
    """The command line to run in the sandbox. It must exit with 0."""
    expected_stdout: str | None = None
    """The text that the command must print, apart from surrounding whitespace."""
    timeout_s: float = Field(default=30.0, gt=0)
    """The timeout of one attempt."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds after which no further attempt is made. The default is the timeout of the sandbox's start."""
    stable_count: int = Field(default=1, ge=1)
    """How many attempts must succeed in a row."""
    stable_delay_s: float = Field(default=0.0, ge=0)
    """Seconds between successful attempts."""

    @model_validator(mode="after")
    def _has_a_command(self) -> Self:
        if self.command is None and self.expected_stdout is not None:
            raise ValueError("expected_stdout needs a command that prints this text; set `command`")
        return self


async def until_ready(
    run: Callable[[str, float], Awaitable[SandboxExecResult]], probe: ProbeConfig, start_timeout_s: float
) -> None:
    """Run the probe until it succeeds. Raise `SandboxCreateVerificationError` if it does not succeed in time."""
    if probe.command is None:
        return
    deadline_s = probe.deadline_s or start_timeout_s
    deadline, passed = time.monotonic() + deadline_s, 0
    while True:
        result = await run(probe.command, probe.timeout_s)
        passed = passed + 1 if _succeeded(result, probe) else 0
        if passed == probe.stable_count:
            return
        if result.error_type == LOST:
            raise SandboxCreateVerificationError(f"the sandbox ended before it was ready: {_described(result)}")
        if time.monotonic() > deadline:
            times = f"{probe.stable_count} times in a row " if probe.stable_count > 1 else ""
            raise SandboxCreateVerificationError(
                f"the sandbox was not ready after {deadline_s:g} s: the probe `{probe.command}` did not succeed "
                f"{times}(last attempt: {_described(result)}). Correct the command, or raise `deadline_s`."
            )
        await asyncio.sleep(probe.stable_delay_s if passed else PAUSE_S)


def _succeeded(result: SandboxExecResult, probe: ProbeConfig) -> bool:
    is_expected = probe.expected_stdout in (None, (result.stdout or "").strip())
    return result.return_code == 0 and result.error_type is None and is_expected


def _described(result: SandboxExecResult) -> str:
    output = (result.stderr or "").strip() or (result.stdout or "").strip()
    return f"exit code {result.return_code}, {output[-SHOWN:] or 'no output'}"
