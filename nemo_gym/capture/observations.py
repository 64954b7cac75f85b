"""Observations that an agent reports of its work: invocations, tool calls, compactions, sandboxes and gaps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, model_validator

from nemo_gym.config.settings import ModelServerRef
from nemo_gym.schemas.items import InputItem

ToolStatus = Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"]


class Observation(BaseModel):
    """Base class that forbids unknown fields, because a misspelled field would be lost without notice."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class ObservationGap(Observation):
    """A missing part of the observations."""

    code: str
    """A short, fixed code for programs, such as `model_calls_unavailable`."""
    invocation_id: str | None = None
    detail: str | None = None


class ModelCallRef(Observation):
    """A reference to a model call, by its recorded id or by its server and the id of its answer."""

    model_call_id: str | None = None
    model_ref: ModelServerRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def _names_a_call(self) -> Self:
        if self.model_call_id is None and (self.model_ref is None or self.response_id is None):
            raise ValueError("a reference to a model call needs model_call_id, or both model_ref and response_id")
        return self


class AgentInvocation(Observation):
    """One run of an agent. The run of a sub-agent has a parent invocation."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    """The parent's tool call that started this sub-agent."""
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: NonNegativeFloat | None = None
    error_type: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    conversation: list[InputItem] = Field(default_factory=list)
    """All items of the invocation in order, including its input."""


class ToolCallObservation(Observation):
    """A tool call that an agent observed. Its output is in the conversation."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    """Seconds since the epoch."""
    completed_at: float | None = None
    """Seconds since the epoch."""
    duration_ms: NonNegativeFloat | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    """The source of the times: the program that ran the tool, a file of the agent, or the agent's own clock."""
    status: ToolStatus = "unknown"
    error_type: str | None = None

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        started_at, completed_at = self.started_at, self.completed_at
        if started_at is not None and completed_at is not None and completed_at < started_at:
            raise ValueError(f"the call ends at {completed_at}, before its start at {started_at}")
        return self


class ContextCompactionObservation(Observation):
    """A context compaction, in which an agent replaces a part of its conversation by a summary."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    """Seconds since the epoch."""
    trigger: str | None = None
    tokens_before: NonNegativeInt | None = None
    tokens_after: NonNegativeInt | None = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    """The last call before the compaction."""
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    """The calls that wrote the summary."""
    after_model_call: ModelCallRef | None = None
    """The first call after the compaction."""


class SandboxObservation(Observation):
    """A sandbox of a rollout, and the resources that it used."""

    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"]
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: Literal["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"] = "unknown"
    exit_code: int | None = None
    wall_time_s: NonNegativeFloat | None = None
    cpu_time_s: NonNegativeFloat | None = None
    peak_memory_mib: NonNegativeFloat | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


AgentObservation = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation,
    Field(discriminator="kind"),
]
Record = TypeVar("Record", AgentInvocation, ToolCallObservation, ContextCompactionObservation, SandboxObservation)


class AgentObservationBundle(Observation):
    """All observations of one rollout, found under `ng_agent_observations` in an agent's answer."""

    source: str
    """The agent that reports the observations."""
    records: list[AgentObservation] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _invocations_form_trees(self) -> Self:
        invocations = self.of_type(AgentInvocation)
        check_unique("invocation_id", (each.invocation_id for each in invocations))
        _check_ancestors({each.invocation_id: each.parent_invocation_id for each in invocations})
        return self

    def of_type(self, cls: type[Record]) -> list[Record]:
        """Return the records of one type, in the order in which they were reported."""
        return [record for record in self.records if isinstance(record, cls)]


def check_unique(name: str, keys: Iterable[Hashable | None]) -> None:
    """Raise `ValueError` if a key other than None is repeated."""
    seen: set[Hashable] = set()
    for key in keys:
        if key is not None and key in seen:
            raise ValueError(f"{name} {key!r} is repeated")
        seen.add(key)


def _check_ancestors(parents: Mapping[str, str | None]) -> None:
    for invocation_id in parents:
        seen: set[str] = set()
        ancestor: str | None = invocation_id
        while ancestor is not None and ancestor in parents:
            if ancestor in seen:
                raise ValueError(f"the parents of invocation {invocation_id!r} form a cycle")
            seen.add(ancestor)
            ancestor = parents[ancestor]
