"""Observations that an agent reports of its work: invocations, tool calls, compactions, sandboxes and gaps."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from nemo_gym.config.settings import ModelServerRef

Moment = float | datetime
"""Seconds since the epoch, or a time in ISO 8601; written in the form in which it was given."""


class Observation(BaseModel):
    """Base class that forbids unknown fields, because a misspelled field would be lost without notice."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class ObservationGap(Observation):
    """A missing part of the observations."""

    code: str
    """A short, fixed code for programs, such as `no_model_calls`."""
    invocation_id: str | None = None
    detail: str | None = None


class ModelCallRef(Observation):
    """A reference to a model call, by its recorded id or by the id of its answer."""

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
    """One run of an agent; that of a sub-agent has a parent."""

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
        """The calls of the invocation and of its episodes."""
        return [*self.model_calls, *(call for episode in self.episodes for call in episode.model_calls)]


class ToolCall(Observation):
    """One tool call, both in observations and in trajectories."""

    invocation_id: str | None = None
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    duration_ms: NonNegativeFloat | None = None
    timing_source: str | None = None
    """The source of the times; None if they were not measured."""
    status: str | None = None
    error_type: str | None = None
    output: object = None


class ToolCallObservation(ToolCall):
    """A tool call that an agent observed."""

    kind: Literal["tool_call"] = "tool_call"


class ContextCompactionObservation(Observation):
    """A compaction of an agent's conversation."""

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
    """All observations of one rollout, found under `ng_agent_observations` in an agent's answer."""

    source: str
    """The agent that reports them."""
    records: list[AgentObservation] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @property
    def invocations(self) -> list[AgentInvocation]:
        """The agent invocations, in the order in which they were reported."""
        return [record for record in self.records if isinstance(record, AgentInvocation)]

    @property
    def tool_calls(self) -> list[ToolCallObservation]:
        """The tool calls, in the order in which they were reported."""
        return [record for record in self.records if isinstance(record, ToolCallObservation)]
