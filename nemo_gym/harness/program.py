"""One run of a program in a sandbox, from its start to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nemo_gym.errors import AgentFailed
from nemo_gym.harness.gateway import Gateway
from nemo_gym.harness.workspace import filled_in
from nemo_gym.sandbox import AsyncSandbox, SandboxExecResult
from nemo_gym.sandbox.providers.base import LOST, TIMED_OUT

EndedBy = Literal["exit", "max_steps"]
SHOWN_BYTES = 4_000
"""The maximum length of each output in a result, in characters. Only the end of a longer output is kept."""


@dataclass(frozen=True)
class ProgramRun:
    """The result of a run: how the program ended, and the end of its output."""

    ended_by: EndedBy
    exit_code: int
    seconds: float
    stdout: str
    """The end of the program's standard output."""
    stderr: str


@dataclass(frozen=True)
class Program:
    """A program that calls the model itself.

    Placeholders such as `{model}` in its arguments, environment variables and files are replaced with their values.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    timeout_s: float = 600.0
    grace_s: float = 30.0
    """Seconds that the program may still run after it has exceeded the limit of model calls, to write its files."""

    def environment(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the program's environment variables.

        The clients of each API find the gateway by these variables. Variables of `env` override them.
        """
        known = {
            "OPENAI_BASE_URL": values["openai_base_url"],
            "OPENAI_API_BASE": values["openai_base_url"],
            "OPENAI_API_KEY": values["api_key"],
            "ANTHROPIC_BASE_URL": values["anthropic_base_url"],
            "ANTHROPIC_API_KEY": values["api_key"],
            "GOOGLE_GEMINI_BASE_URL": values["gemini_base_url"],
            "GEMINI_API_KEY": values["api_key"],
            "NEMO_GYM_MODEL": values["model"],
            "NEMO_GYM_MCP_URL": values["mcp_url"],
        }
        return {**known, **{name: filled_in(text, values) for name, text in self.env.items()}}

    async def run(self, sandbox: AsyncSandbox, gateway: Gateway, values: Mapping[str, str]) -> ProgramRun:
        """Run the program to its end. Raise `AgentFailed` if it times out, fails, or never called the model.

        After a call beyond the limit of model calls, neither the timeout nor the exit code is a failure.
        If the program ended and a tool call or its last model call failed, raise the failure of that call instead.
        """
        began_at = time.monotonic()
        words = [filled_in(word, values) for word in self.command]
        running = asyncio.ensure_future(sandbox.exec(words, env=self.environment(values), timeout_s=self.timeout_s))
        limit = asyncio.ensure_future(gateway.limit_reached.wait())
        try:
            await asyncio.wait({running, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=self.grace_s)
            result = running.result() if running.done() else SandboxExecResult("", "", 0)
        finally:
            for task in (running, limit):
                task.cancel()
            await asyncio.wait({running, limit})
        seconds = time.monotonic() - began_at
        self._check(result, gateway)
        ended_by: EndedBy = "max_steps" if gateway.limit_reached.is_set() else "exit"
        return ProgramRun(ended_by, result.return_code, seconds, _end_of(result.stdout), _end_of(result.stderr))

    def _check(self, result: SandboxExecResult, gateway: Gateway) -> None:
        name = self.command[0]
        if result.error_type == TIMED_OUT and not gateway.limit_reached.is_set():
            raise AgentFailed(f"{name} did not end within {self.timeout_s:g} s and was killed{_last_words(result)}")
        if result.error_type == LOST:
            raise AgentFailed(f"the sandbox of {name} was lost: {result.stderr}")
        if (failure := gateway.tool_failure or gateway.failure) is not None:
            raise failure
        if result.return_code != 0 and not gateway.limit_reached.is_set():
            raise AgentFailed(f"{name} ended with exit code {result.return_code}{_last_words(result)}")
        if not gateway.exchanges:
            raise AgentFailed(f"{name} ended without calling the model{_last_words(result)}")


def _end_of(output: str | None) -> str:
    text = output or ""
    return text if len(text) <= SHOWN_BYTES else f"…{text[-SHOWN_BYTES:]}"


def _last_words(result: SandboxExecResult) -> str:
    """Return the last line that the program wrote, for an error message."""
    lines = [line.strip() for line in (result.stderr or result.stdout or "").splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
