"""What an agent tells of its work: who called whom, with which tools, in which sandboxes, and what it missed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from nemo_gym.config.settings import ModelServerRef

Moment = float | datetime
"""Seconds since the epoch, or a time in ISO 8601; it is written as it was told."""


class Observation(BaseModel):
    """Strict on purpose: what an agent misspells would otherwise be lost without a word."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class ObservationGap(Observation):
    """Something that could not be observed."""

    code: str
    """Short and fixed, such as `no_model_calls`; programs count by it."""
    invocation_id: str | None = None
    detail: str | None = None


class ModelCallRef(Observation):
    """Names a model call: by the id under which it is recorded, or by the id of its answer."""

    model_call_id: str | None = None
    response_id: str | None = None
    model_ref: ModelServerRef | None = None


class AgentEpisode(Observation):
    """The part of an invocation between two compactions of its context."""

    episode_id: str
    started_at: Moment | None = None
    completed_at: Moment | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class AgentInvocation(Observation):
    """One agent at work; a sub-agent is an invocation with a parent."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    agent_name: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    duration_ms: NonNegativeFloat | None = None
    status: str | None = None
    error_type: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    episodes: list[AgentEpisode] = Field(default_factory=list)

    @property
    def all_model_calls(self) -> list[ModelCallRef]:
        """The calls of the invocation, those of its episodes too."""
        return [*self.model_calls, *(call for episode in self.episodes for call in episode.model_calls)]


class ToolCall(Observation):
    """One call of a tool, as it is told both by an agent and in a trajectory."""

    invocation_id: str | None = None
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    duration_ms: NonNegativeFloat | None = None
    timing_source: str | None = None
    """Who took the times; None where nobody did."""
    status: str | None = None
    error_type: str | None = None
    output: Any = None


class ToolCallObservation(ToolCall):
    """A tool call that an agent observed."""

    kind: Literal["tool_call"] = "tool_call"


class ContextCompactionObservation(Observation):
    """An agent made its conversation shorter before it went on."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str | None = None
    compaction_id: str | None = None
    occurred_at: Moment | None = None
    trigger: str | None = None
    tokens_before: NonNegativeInt | None = None
    tokens_after: NonNegativeInt | None = None
    summary: str | None = None


class SandboxObservation(Observation):
    """A sandbox that an agent worked in."""

    kind: Literal["sandbox"] = "sandbox"
    invocation_id: str | None = None
    sandbox_id: str
    provider: str | None = None
    image: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    duration_ms: NonNegativeFloat | None = None
    status: str | None = None
    error_type: str | None = None


AgentObservation = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation,
    Field(discriminator="kind"),
]


class AgentObservationBundle(Observation):
    """All that an agent observed in one rollout: the `ng_agent_observations` of its answer."""

    source: str
    """Which agent tells it."""
    records: list[AgentObservation] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @property
    def invocations(self) -> list[AgentInvocation]:
        """The agents at work, in the order they are told."""
        return [record for record in self.records if isinstance(record, AgentInvocation)]

    @property
    def tool_calls(self) -> list[ToolCallObservation]:
        """The tool calls, in the order they are told."""
        return [record for record in self.records if isinstance(record, ToolCallObservation)]
