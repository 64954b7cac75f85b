"""The record of a rollout's trajectory: turns, model calls and tool calls."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from nemo_gym.capture.observations import (
    AgentInvocation,
    ModelCallRef,
    Observation,
    ObservationGap,
    ToolCallObservation,
    check_unique,
)
from nemo_gym.config.settings import ModelServerRef


class TrajectoryTokenStats(Observation):
    """Token counts of a model call; None if they are unknown."""

    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    reasoning_tokens: NonNegativeInt | None = None
    total_tokens: NonNegativeInt | None = None
    cached_tokens: NonNegativeInt | None = None


class TrajectoryResponseMetadata(Observation):
    """The metadata of a model call's answer, without its content."""

    response_id: str | None = None
    model_ref: ModelServerRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: NonNegativeFloat | None = None


class TrajectoryModelCall(Observation):
    """A model call of the trajectory: its request, its answer and the data about both."""

    model_call_id: str | None = None
    started_at: float | None = None
    """Seconds since the epoch."""
    completed_at: float | None = None
    """Seconds since the epoch."""
    duration_ms: NonNegativeFloat | None = None
    request: object = None
    response: object = None
    response_metadata: TrajectoryResponseMetadata = Field(default_factory=TrajectoryResponseMetadata)
    token_stats: TrajectoryTokenStats = Field(default_factory=TrajectoryTokenStats)


class TrajectoryToolCall(ToolCallObservation):
    """A tool call with its output."""

    output: object = None


class TrajectoryTurn(Observation):
    """A question and its answer, with all the work between them."""

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: PositiveInt
    timestamp: float
    """Seconds since the epoch."""
    question: object = None
    answer: object = None
    reasoning_content: object = None
    resolved: bool | None = None
    """Whether the task was solved; None if the environment does not report it."""
    step_count: NonNegativeInt
    """The number of model calls for the answer."""
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class TrajectoryRecord(Observation):
    """The trajectory of a rollout, found under `ng_trajectory` in its result."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[TrajectoryModelCall] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_about_one_rollout(self) -> Self:
        check_unique("invocation_id", (each.invocation_id for each in self.invocations))
        check_unique("model_call_id", (call.model_call_id for call in self.model_calls))
        check_unique("turn", ((turn.invocation_id, turn.turn_no) for turn in self.turns))
        for turn in self.turns:
            if (turn.task_id, turn.rollout_id) != (self.task_id, self.rollout_id):
                raise ValueError(
                    f"turn {turn.turn_no} belongs to task {turn.task_id!r} and rollout {turn.rollout_id!r}, but the "
                    f"record belongs to task {self.task_id!r} and rollout {self.rollout_id!r}"
                )
        return self
