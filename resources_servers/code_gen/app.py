"""Grade a program by running its tests in a sandbox."""

import ast
import asyncio
import json
from functools import cached_property
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.grading import CodeTests, ConfinedPython, Limits, grade_code, last_code_block


class CodeGenConfig(BaseResourcesServerConfig):
    """The limits of programs."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    num_processes: int = Field(8, ge=1)
    """Number of programs that run at the same time."""
    unit_test_timeout_secs: float = Field(10, gt=0)
    total_timeout_secs: float = Field(60, gt=0)
    """For all tests of one program together."""
    debug: bool = False
    """Whether to add a failed test's input, output and expected output to the metadata."""
    memory_limit_mb: int = Field(1024, ge=64)
    allow_unconfined: bool = False
    """If no sandbox is available, run programs without one, with limits on time and memory only."""


class UnitTests(BaseModel):
    """The tests of a program: one input and one output each, or `check`, code that calls the function and asserts."""

    model_config = ConfigDict(extra="allow")

    inputs: list[str] = []
    outputs: list[str] = []
    fn_name: str | None = None
    check: str | None = None
    preamble: str = ""


class VerifierMetadata(BaseModel):
    model_config = ConfigDict(extra="allow")

    unit_tests: UnitTests


class CodeGenVerifyRequest(BaseVerifyRequest):
    """The row and the agent's response."""

    model_config = ConfigDict(extra="allow")

    verifier_metadata: VerifierMetadata


class CodeGenServer(SimpleResourcesServer):
    """A verifier that tests the program in the last fenced block of the last message."""

    config: CodeGenConfig

    @cached_property
    def python(self) -> ConfinedPython:
        """The sandboxes that run programs."""
        limits = Limits(memory_mb=self.config.memory_limit_mb)
        return ConfinedPython(self.config.num_processes, limits, allow_unconfined=self.config.allow_unconfined)

    async def startup(self) -> None:
        """Detect and log how programs can be confined."""
        await self.python.level()

    async def aclose(self) -> None:
        self.python.close()

    async def verify(self, body: CodeGenVerifyRequest) -> BaseVerifyResponse:
        """Reward a program that passes all of its tests."""
        # Validating long tests would block the event loop.
        tests = await asyncio.to_thread(self._tests, body.verifier_metadata.unit_tests)
        text = body.response.last_text
        code = last_code_block(text)
        # Exclude defaults, because the reply must contain the row as it was.
        given = body.verifier_metadata.model_dump(exclude_unset=True)
        added: dict[str, Any] = {"verifier_metadata": given, "extracted_model_output": text}
        added["extracted_model_code"] = code
        if code is None:
            empty = {"result": [], "metadata": {"error_message": "no code block"}, "unit_tests_time_taken": 0.0}
            return BaseVerifyResponse.grade(body, reward=0.0, **added, **empty)
        grade = await grade_code(
            code,
            tests,
            self.python,
            trial_s=self.config.unit_test_timeout_secs,
            total_s=self.config.total_timeout_secs,
        )
        first = grade.first_failure
        metadata: dict[str, Any] = {"confinement": str(await self.python.level())}
        if first:
            metadata |= {"failed_test": first.test, "error_code": first.error_code}
            metadata |= {"error_message": first.error_message}
            if self.config.debug:
                metadata |= {"inputs": first.input, "output": first.output, "expected": first.expected}
        return BaseVerifyResponse.grade(
            body,
            reward=float(grade.is_passed),
            **added,
            result=grade.results,
            metadata=metadata,
            unit_tests_time_taken=grade.seconds,
        )

    def _tests(self, given: UnitTests) -> CodeTests:
        where = f"{self.config.name}: verifier_metadata.unit_tests"
        if given.check is not None and given.fn_name is None:
            raise InvalidTask(f"{where}: fn_name is missing. Set it to the function that 'check' calls.")
        if given.check is None and len(given.inputs) != len(given.outputs):
            raise InvalidTask(
                f"{where}: {len(given.inputs)} inputs and {len(given.outputs)} outputs. Each test needs one of each."
            )
        if given.check is None and not given.inputs:
            raise InvalidTask(f"{where}: no tests. Add at least one.")
        problem = _unreadable_code(given) or _invalid_json(given)
        if problem:
            raise InvalidTask(f"{where}: {problem}. Fix it, because no program can pass.")
        return CodeTests(given.inputs, given.outputs, given.fn_name, given.check, given.preamble)


def _unreadable_code(given: UnitTests) -> str | None:
    for key, code in (("preamble", given.preamble), ("check", given.check or "")):
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{key} is not Python: {error}"
    return None


def _invalid_json(given: UnitTests) -> str | None:
    """Describe the first argument or result of a function test that is not JSON."""
    if given.fn_name is None or given.check is not None:
        return None
    for number, (arguments, result) in enumerate(zip(given.inputs, given.outputs, strict=True)):
        lines = [line for line in arguments.split("\n") if line.strip()]
        for key, text in [*(("inputs", line) for line in lines), ("outputs", result)]:
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                return f"{key}[{number}] is not JSON: {error}"
    return None


if __name__ == "__main__":
    CodeGenServer.run_webserver()
