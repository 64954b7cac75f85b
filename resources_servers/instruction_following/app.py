"""Grade an answer by the constraints on its form that the row lists."""

from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.grading import WorkerPool, WorkerTimedOut
from resources_servers.instruction_following.constraints import Constraint, constraint, followed

GradingMode = Literal["binary", "fraction"]

WORKERS, DEADLINE_S = 2, 10.0
SHORT = 10_000
"""Characters that take a few milliseconds to check. Longer texts are checked in a worker."""


class InstructionFollowingConfig(BaseResourcesServerConfig):
    """With `loose`, a constraint may also be met without the answer's first line, last line or asterisks."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    loose: bool = False


class Task(BaseModel):
    """The ids of the constraints, and the arguments of each."""

    model_config = ConfigDict(extra="allow")

    instruction_id_list: list[str] | None = None
    kwargs: list[dict[str, Any] | None] | None = None
    grading_mode: GradingMode | None = None


class InstructionFollowingRunRequest(Task, BaseRunRequest):
    """A dataset row. Missing fields are read from `verifier_metadata`."""

    verifier_metadata: Task | None = None


class InstructionFollowingVerifyRequest(InstructionFollowingRunRequest, BaseVerifyRequest):
    """The row and the agent's response."""


class Assignment(NamedTuple):
    """A row's constraints and grading mode."""

    constraints: list[Constraint]
    grading_mode: GradingMode


class InstructionFollowingServer(SimpleResourcesServer):
    """A verifier that checks the last message against every constraint of the row."""

    config: InstructionFollowingConfig
    KEY_METRICS = ("mean/reward", "mean/follow_all_instructions", "mean/input_tokens", "mean/output_tokens")

    _workers: WorkerPool = PrivateAttr(default_factory=lambda: WorkerPool(WORKERS, DEADLINE_S))

    async def aclose(self) -> None:
        await super().aclose()
        self._workers.close()

    async def verify(self, body: InstructionFollowingVerifyRequest) -> BaseVerifyResponse:
        try:
            constraints, mode = assignment_of(body)
        except InvalidTask as error:
            raise InvalidTask(f"{self.config.name}: {error}") from error
        each = await self._followed(body.response.last_text, constraints)
        return BaseVerifyResponse.grade(
            body,
            reward=sum(each) / len(each) if mode == "fraction" else float(all(each)),
            follow_all_instructions=all(each),
            follow_instruction_list=each,
        )

    async def _followed(self, text: str, constraints: list[Constraint]) -> list[bool]:
        if len(text) <= SHORT:
            return followed(text, constraints, self.config.loose)
        try:
            return await self._workers.run(followed, text, constraints, self.config.loose)
        except WorkerTimedOut:
            return [False] * len(constraints)


def assignment_of(row: InstructionFollowingRunRequest) -> Assignment:
    """Return a row's constraints and grading mode. Raises `InvalidTask` if the row does not define them."""
    other = row.verifier_metadata or Task()
    ids = row.instruction_id_list or other.instruction_id_list
    arguments = row.kwargs if row.kwargs is not None else other.kwargs
    if not ids:
        raise InvalidTask("instruction_id_list is empty or missing. List at least one constraint.")
    given = arguments if arguments is not None else [None] * len(ids)
    if len(given) != len(ids):
        raise InvalidTask(f"instruction_id_list has {len(ids)} ids, kwargs has {len(given)} items. Make them equal.")
    constraints = [constraint(id_, each) for id_, each in zip(ids, given, strict=True)]
    return Assignment(constraints, row.grading_mode or other.grading_mode or "binary")


if __name__ == "__main__":
    InstructionFollowingServer.run_webserver()
