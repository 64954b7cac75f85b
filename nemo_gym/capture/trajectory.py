"""The record of a rollout's trajectory: turns, model calls and tool calls."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from nemo_gym.capture.observations import AgentInvocation, ModelCallRef, Moment, Observation, ObservationGap, ToolCall
from nemo_gym.capture.records import Dialect, ModelCallRecord
from nemo_gym.config.settings import ModelServerRef


class TrajectoryTokenStats(Observation):
    """Token counts of a model call."""

    tokens_in: NonNegativeInt = 0
    tokens_out: NonNegativeInt = 0
    tokens_reasoning: NonNegativeInt = 0
    tokens_total: NonNegativeInt = 0
    cached_tokens: NonNegativeInt = 0


class TrajectoryModelCall(Observation):
    """One model call, without the contents of request and answer."""

    model_call_id: str
    invocation_id: str | None = None
    """None if the calling agent is unknown."""
    dialect: Dialect | None = None
    model_ref: ModelServerRef | None = None
    response_id: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    latency_ms: NonNegativeFloat | None = None
    latency_ttft_ms: NonNegativeFloat | None = None
    status_code: int | None = None
    error_category: str | None = None
    tokens: TrajectoryTokenStats | None = None

    @classmethod
    def of_record(cls, record: ModelCallRecord, invocation_id: str | None) -> Self:
        """Return the call of a record, made by this invocation."""
        shared = {name: getattr(record, name) for name in cls.model_fields if hasattr(record, name)}
        # Without an answer the counts are unknown, which is not the same as zero.
        tokens = None if record.response is None else TrajectoryTokenStats(**record.usage.model_dump())
        return cls(**shared, invocation_id=invocation_id, tokens=tokens)


class TrajectoryToolCall(ToolCall):
    """A tool call of a trajectory."""


class TrajectoryTurn(Observation):
    """A question and its answer, with all the work between them."""

    invocation_id: str | None = None
    task_id: str | None = None
    rollout_id: str | None = None
    turn_no: PositiveInt
    timestamp: Moment | None = None
    question: str | None = None
    answer: str | None = None
    reasoning_content: str | None = None
    resolved: bool | None = None
    """Whether the task was solved; None if the environment does not report it."""
    step_count: NonNegativeInt | None = None
    """The number of model calls for the answer."""
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class TrajectoryRecord(Observation):
    """The `ng_trajectory` of a result."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str | None = None
    rollout_id: str | None = None
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[TrajectoryModelCall] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)
