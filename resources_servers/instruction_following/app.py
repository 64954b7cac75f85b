"""Grade an answer by the row's constraints on the answer's form, such as its length or its keywords."""

from collections.abc import Callable, Iterable
from itertools import chain
from statistics import fmean
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
from nemo_gym.jsonl import JsonObject
from resources_servers.instruction_following.constraints import Constraint, Followed, constraint, followed

GradingMode = Literal["binary", "fraction"]

INSTRUCTION_LEVEL = ("inst_level_strict_acc", "inst_level_loose_acc")
STATISTICS: dict[str, Callable[[list[bool]], float]] = {"mean": fmean, "min": min, "max": max}
WORKERS, DEADLINE_S = 2, 10.0
MOST_NAMED = 10
SHORT = 4_000
"""Maximum number of characters in a text that is checked in this process, in about 10 ms, instead of in a worker."""


class InstructionFollowingConfig(BaseResourcesServerConfig):
    """The server's configuration, with an option for loose grading."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    loose: bool = False
    """Whether to also count constraints that the answer meets without its first line, last line or asterisks."""


class Task(BaseModel):
    """The fields of a row that define its constraints. `kwargs` has one item per id, in the same order."""

    model_config = ConfigDict(extra="allow")

    instruction_id_list: list[str] | None = None
    kwargs: list[dict[str, Any] | None] | None = None
    grading_mode: GradingMode | None = None


class InstructionFollowingRunRequest(Task, BaseRunRequest):
    """A dataset row. Missing fields are read from `verifier_metadata`."""

    verifier_metadata: Task | None = None


class InstructionFollowingVerifyRequest(InstructionFollowingRunRequest, BaseVerifyRequest):
    """A `verify()` request with the row and the agent's response."""


class Assignment(NamedTuple):
    """A row's constraints and grading mode."""

    constraints: list[Constraint]
    grading_mode: GradingMode


class InstructionFollowingServer(SimpleResourcesServer):
    """A verifier that checks the last message against every constraint of the row."""

    config: InstructionFollowingConfig
    KEY_METRICS = (
        "mean/reward",
        "mean/follow_all_instructions",
        "mean/prompt_level_strict_acc",
        "mean/prompt_level_loose_acc",
        "mean/inst_level_strict_acc",
        "mean/inst_level_loose_acc",
        "mean/input_tokens",
        "mean/output_tokens",
    )

    _workers: WorkerPool = PrivateAttr(default_factory=lambda: WorkerPool(WORKERS, DEADLINE_S))

    async def aclose(self) -> None:
        await super().aclose()
        self._workers.close()

    async def verify(self, body: InstructionFollowingVerifyRequest) -> BaseVerifyResponse:
        try:
            constraints, mode = assignment_of(body)
        except InvalidTask as error:
            raise InvalidTask(f"{self.config.name}: {error}") from error
        strict, loose = await self._followed(body.response.answer_text, constraints)
        each = loose if self.config.loose else strict
        return BaseVerifyResponse.grade(
            body,
            reward=sum(each) / len(each) if mode == "fraction" else float(all(each)),
            why=_why(each, constraints),
            follow_all_instructions=all(each),
            follow_instruction_list=each,
            prompt_level_strict_acc=all(strict),
            prompt_level_loose_acc=all(loose),
            inst_level_strict_acc=strict,
            inst_level_loose_acc=loose,
        )

    async def _followed(self, text: str, constraints: list[Constraint]) -> Followed:
        if len(text) <= SHORT:
            return followed(text, constraints)
        try:
            return await self._workers.run(followed, text, constraints)
        except WorkerTimedOut:
            return Followed([False] * len(constraints), [False] * len(constraints))

    def compute_metrics(self, tasks: list[list[JsonObject]]) -> JsonObject:
        """Add the instruction-level accuracies. Each is a mean over the constraints of all prompts."""
        rollouts = list(chain.from_iterable(tasks))
        pooled = {name: list(chain.from_iterable(_lists(rollouts, name))) for name in INSTRUCTION_LEVEL}
        statistics = {
            f"{statistic}/{name}": compute(values)
            for name, values in pooled.items()
            for statistic, compute in STATISTICS.items()
            if values
        }
        return {**super().compute_metrics(tasks), **statistics}


def _why(is_followed: list[bool], constraints: list[Constraint]) -> str:
    broken = [each.id for each, holds in zip(constraints, is_followed, strict=True) if not holds]
    listed = ", ".join(broken[:MOST_NAMED]) + (", …" if len(broken) > MOST_NAMED else "")
    count = f"the answer follows {len(constraints) - len(broken)} of {len(constraints)} constraints"
    return f"{count}, and breaks {listed}" if broken else count


def _lists(rollouts: Iterable[JsonObject], name: str) -> Iterable[list[bool]]:
    # Skip missing lists, because rollouts graded by an earlier version do not have them.
    return (rollout.get(name) or [] for rollout in rollouts)


def assignment_of(row: InstructionFollowingRunRequest) -> Assignment:
    """Return a row's constraints and grading mode. Raises `InvalidTask` if the row does not define them."""
    other = row.verifier_metadata or Task()
    ids = row.instruction_id_list or other.instruction_id_list
    arguments = row.kwargs if row.kwargs is not None else other.kwargs
    if not ids:
        raise InvalidTask("instruction_id_list is empty or missing. List at least one constraint.")
    given = arguments if arguments is not None else [None] * len(ids)
    if len(given) != len(ids):
        raise InvalidTask(
            f"instruction_id_list has {len(ids)} ids, kwargs has {len(given)} items. Give kwargs one item per id."
        )
    constraints = [constraint(id_, each) for id_, each in zip(ids, given, strict=True)]
    return Assignment(constraints, row.grading_mode or other.grading_mode or "binary")


if __name__ == "__main__":
    InstructionFollowingServer.run_webserver()
