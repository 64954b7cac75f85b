"""Grade a program by running its tests in a sandbox."""

import asyncio
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
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.grading import CodeGrade, CodeTests, ConfinedPython, Limits, grade_code, last_code_block
from resources_servers.code_gen.unit_tests import UnitTests, UnusableTests, code_tests, whole_program

SUBSET_KEY = "difficulty"
PYTHON = ("python", "python3", "py", "py3")
"""The languages that mark a block as the program."""
LONGEST_ERROR = 300


class CodeGenConfig(BaseResourcesServerConfig):
    """The limits on the tested programs."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    num_processes: int = Field(8, ge=1)
    """Maximum number of programs that run at the same time."""
    unit_test_timeout_secs: float = Field(10, gt=0)
    total_timeout_secs: float = Field(60, gt=0)
    """The time limit for all tests of one program together."""
    debug: bool = False
    """Whether to add a failed test's input, output and expected output to the metadata."""
    memory_limit_mb: int = Field(1024, ge=64)
    """Memory limit of one test in MiB."""
    allow_unconfined: bool = False
    """Whether to run programs without a sandbox if none is available. Then only time and memory are limited."""


class VerifierMetadata(BaseModel):
    model_config = ConfigDict(extra="allow")

    unit_tests: UnitTests


class CodeGenVerifyRequest(BaseVerifyRequest):
    """The row and the agent's response."""

    model_config = ConfigDict(extra="allow")

    verifier_metadata: VerifierMetadata


class CodeGenServer(SimpleResourcesServer):
    """A verifier that tests the program in the last fenced block of Python of the last message."""

    config: CodeGenConfig
    KEY_METRICS = ("mean/input_tokens", "mean/output_tokens", "pass@1[avg-of-{k}]/accuracy", "pass@{k}/accuracy")

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
        # Validate the tests in a thread, because long ones would block the event loop.
        tests = await asyncio.to_thread(self._tests, body.verifier_metadata.unit_tests)
        code = last_code_block(body.response.answer_text, PYTHON)
        # Exclude defaults, because the reply must contain the row unchanged.
        given = body.verifier_metadata.model_dump(exclude_unset=True)
        added: dict[str, Any] = {"verifier_metadata": given, "extracted_model_output": body.response.last_text}
        added["extracted_model_code"] = code
        if code is None:
            empty = {"result": [], "metadata": {"error_message": "no code block"}, "unit_tests_time_taken": 0.0}
            why = "the answer does not contain a block of Python"
            return BaseVerifyResponse.grade(body, reward=0.0, **added, **empty, why=why)
        grade = await grade_code(
            await asyncio.to_thread(whole_program, code, tests),
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
            why=_why(grade),
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass rates, overall and for each difficulty."""
        return {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, SUBSET_KEY)}

    def _tests(self, given: UnitTests) -> CodeTests:
        try:
            return code_tests(given)
        except UnusableTests as error:
            raise InvalidTask(f"{self.config.name}: verifier_metadata.unit_tests: {error}") from error


def _why(grade: CodeGrade) -> str:
    count = f"{sum(each is True for each in grade.results)} of {len(grade.results)} tests passed"
    if grade.first_failure is None:
        return count
    message = grade.first_failure.error_message[:LONGEST_ERROR]
    return f"{count}; test {grade.first_failure.test} failed first: {message!r}"


if __name__ == "__main__":
    CodeGenServer.run_webserver()
