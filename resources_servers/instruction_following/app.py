"""Grade an answer by the constraints on its form that the prompt names."""

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
from nemo_gym.grading.constraints import Constraint, constraint, followed

GradingMode = Literal["binary", "fraction"]

KEY_METRICS = ("mean/reward", "mean/follow_all_instructions", "mean/input_tokens", "mean/output_tokens")

WORKERS, DEADLINE_S = 2, 10.0
SHORT = 10_000
"""Characters whose check takes some milliseconds; longer texts are checked in a worker."""


class InstructionFollowingConfig(BaseResourcesServerConfig):
    """`loose` also takes an answer that obeys once its first or last line or its asterisks are left out."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    loose: bool = False


class Task(BaseModel):
    """The constraints by their ids, and the arguments of each."""

    model_config = ConfigDict(extra="allow")

    instruction_id_list: list[str] | None = None
    kwargs: list[dict[str, Any] | None] | None = None
    grading_mode: GradingMode | None = None


class InstructionFollowingRunRequest(Task, BaseRunRequest):
    """A row: what it lacks may stand in `verifier_metadata`."""

    verifier_metadata: Task | None = None


class InstructionFollowingVerifyRequest(InstructionFollowingRunRequest, BaseVerifyRequest):
    """The row, and what the agent answered."""


class Assignment(NamedTuple):
    """What a row asks for."""

    constraints: list[Constraint]
    grading_mode: GradingMode


class InstructionFollowingServer(SimpleResourcesServer):
    """Checks the last message against every constraint of the row."""

    config: InstructionFollowingConfig

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

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """How well instructions were followed; the means of the rows' own numbers say nothing."""
        return {name: agent_metrics[name] for name in KEY_METRICS if name in agent_metrics}

    async def _followed(self, text: str, constraints: list[Constraint]) -> list[bool]:
        if len(text) <= SHORT:
            return followed(text, constraints, self.config.loose)
        try:
            return await self._workers.run(followed, text, constraints, self.config.loose)
        except WorkerTimedOut:
            return [False] * len(constraints)


def assignment_of(row: InstructionFollowingRunRequest) -> Assignment:
    """The constraints of a row with their arguments; raises `InvalidTask` where it is not told what to check."""
    other = row.verifier_metadata or Task()
    ids = row.instruction_id_list or other.instruction_id_list
    arguments = row.kwargs if row.kwargs is not None else other.kwargs
    if not ids:
        raise InvalidTask("the row names no constraint in instruction_id_list.")
    given = arguments if arguments is not None else [None] * len(ids)
    if len(given) != len(ids):
        raise InvalidTask(f"the row has {len(ids)} constraints in instruction_id_list and {len(given)} kwargs.")
    constraints = [constraint(id_, each) for id_, each in zip(ids, given, strict=True)]
    return Assignment(constraints, row.grading_mode or other.grading_mode or "binary")


if __name__ == "__main__":
    InstructionFollowingServer.run_webserver()
