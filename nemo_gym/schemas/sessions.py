"""Requests and responses for sessions of resources servers and agents, and the ids of their episodes and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.rollout import BaseSeedSessionRequest, BaseSeedSessionResponse
from nemo_gym.schemas.row import ATTEMPT_INDEX_KEY, POLICY_KEYS, TASK_ID_KEYS, Row
from nemo_gym.schemas.tool_access import ToolAccess

AGENT_SESSIONS_PATH = "/v1/agent_sessions"
CLOSE_AGENT_SESSION_PATH = "/v1/agent_sessions/close"
NOT_TASK_DATA = frozenset({"responses_create_params", "agent_ref", "skills_ref", *POLICY_KEYS})
"""Fields of a row that are not its task's own data."""


class EpisodeId(BaseModel):
    """The id of one attempt at a rollout: the rollout's id, and the number of failed attempts before this one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollout_id: str
    attempt: int = Field(default=0, ge=0)

    @property
    def capture_key(self) -> str:
        """The id under which the calls of this attempt are captured."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id


class TaskId(BaseModel):
    """The id of a task, and the task set that contains it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    taskset: str
    task_id: str


class ResourcesSeedSessionRequest(BaseSeedSessionRequest):
    """The body of `/seed_session`: the id that the caller chooses for the new session, and the task with its own data.

    A whole row is accepted too. The fields that belong to its task become the `task_data`.
    """

    model_config = ConfigDict(extra="forbid")

    resources_session_id: str
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, given: object) -> object:
        if not isinstance(given, dict) or "responses_create_params" not in given:
            return given
        return {key: given[key] for key in cls.model_fields if key in given} | session_fields(given)


class ResourcesSeedSessionResponse(BaseSeedSessionResponse):
    """The response to `/seed_session`. Subclasses may add fields, which the agent receives."""

    model_config = ConfigDict(extra="allow")


class ResourcesCloseSessionRequest(BaseModel):
    """The body of `/close_session`. The cookie identifies the session."""

    model_config = ConfigDict(extra="allow")

    resources_session_id: str | None = None


class ResourcesCloseSessionResponse(BaseModel):
    """The response to `/close_session`: whether the session had any state to close."""

    model_config = ConfigDict(extra="allow")

    closed: bool = True


class AgentSeedSessionRequest(BaseModel):
    """The body of `/v1/agent_sessions`: the agent's new session, its task, and what the session can reach."""

    model_config = ConfigDict(extra="forbid")

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: list[ToolAccess] = Field(default_factory=list)
    sandbox_access: dict[str, Any] | None = None
    """How to reach the task's sandbox, in the form of its provider; None if the task has none."""


class AgentSeedSessionResponse(BaseModel):
    """The response to `/v1/agent_sessions`: the id of the agent's new session."""

    model_config = ConfigDict(extra="allow")

    agent_session_id: str | None = None


class AgentCloseSessionRequest(BaseModel):
    """The body of `/v1/agent_sessions/close`: the agent's session to close."""

    model_config = ConfigDict(extra="forbid")

    agent_session_id: str
    episode_id: EpisodeId


class AgentCloseSessionResponse(BaseModel):
    """The response to `/v1/agent_sessions/close`: whether the session was open, and what remains of it."""

    model_config = ConfigDict(extra="allow")

    closed: bool = True
    agent_observations: JsonObject | None = None
    """The agent's observations, which become `ng_agent_observations` of the result."""
    resources_cookies: dict[str, str] = Field(default_factory=dict)
    """The cookies that the resources server has set in calls of the agent."""


def session_fields(row: JsonObject) -> JsonObject:
    """Return the fields of a new session for a row. Raise `ValueError` for an invalid id or attempt."""
    task = Row(row)
    if task.attempt < 0:
        raise ValueError(f"{ATTEMPT_INDEX_KEY} must be an integer of at least 0, found {task.attempt}")
    rollout_id = task.of_attempt(0).rollout_id or uuid4().hex
    named = (row.get(key) for key in TASK_ID_KEYS)
    task_id = next((each for each in named if isinstance(each, str | int)), task.task_index)
    return {
        "resources_session_id": uuid4().hex,
        "episode_id": {"rollout_id": rollout_id, "attempt": task.attempt},
        "task_id": {"taskset": str(row.get("task_source") or task.agent or ""), "task_id": str(task_id or 0)},
        "task_data": own_fields(row),
    }


def own_fields(row: JsonObject) -> Mapping[str, object]:
    """Return the fields of a row that are its task's own data."""
    return {key: value for key, value in Row(row).without_private().items() if key not in NOT_TASK_DATA}
