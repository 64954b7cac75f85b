"""The messages of one rollout: seed, run, verify, aggregate; and the key that names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from operator import not_
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.schemas.responses import Response, ResponseCreateParams

TASK_INDEX_KEY = "_ng_task_index"
ROLLOUT_INDEX_KEY = "_ng_rollout_index"
ATTEMPT_INDEX_KEY = "_ng_attempt_index"
ROLLOUT_ID_KEY = "_ng_rollout_id"
AGENT_REF_KEY = "agent_ref"
SKILLS_REF_KEY = "skills_ref"
FAILURE_CLASS_KEY = "_ng_failure_class"
NO_PERSIST_KEY = "_ng_no_persist"
TERMINAL_KEY = "_ng_failure_terminal"
FAILURE_MESSAGE_KEY = "_ng_failure_message"
FAILURE_SERVER_KEY = "_ng_failure_server"
FAILURE_TIER_KEY = "_ng_failure_tier"
FAILURE_RETRYABLE_KEY = "_ng_failure_retryable"
JUDGE_ERROR_KEY = "_ng_failure_judge_error"
FAILURE_KEYS = (
    FAILURE_CLASS_KEY, FAILURE_MESSAGE_KEY, FAILURE_SERVER_KEY, FAILURE_TIER_KEY, JUDGE_ERROR_KEY,
)  # fmt: skip
"""What a row may tell of a failure."""

ROLLOUT_HEADER = "x-nemo-gym-rollout"
"""Carries the rollout's id along every call between our servers."""

TIME_LEFT_HEADER = "x-nemo-gym-time-left"
"""With a call between our servers: the seconds in which the rollout has to have ended."""
NOT_BEGUN_HEADER = "x-nemo-gym-not-begun"
"""With an answer of 503: the server had no room and did nothing, so the same call may be sent again."""
FAILURE_HEADER = "x-nemo-gym-failure"
"""With a row that is no grade, answered with 200 by custom: its failure class, for callers that look at no row."""
INPUT_AT_HEADER = "x-nemo-gym-input-at"
"""With a request of a model: where in its body the input begins, which ends it; for servers that pass the input on."""
RUN_ID_HEADER = "x-nemo-gym-run"
"""With a call between our servers: the run that it is meant for. A port may have passed on to another one."""
RUN_TOKEN_HEADER = "x-nemo-gym-run-token"
"""Tells a server that can be reached from outside that the caller belongs to its run."""

ROLLOUT_ID_PATTERN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


class RolloutKey(NamedTuple):
    """Which attempt at which repeat of which task."""

    task: int
    repeat: int
    attempt: int = 0

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self | None:
        """The key that a row carries; None where it carries none."""
        task, repeat = row.get(TASK_INDEX_KEY), row.get(ROLLOUT_INDEX_KEY)
        if not isinstance(task, int) or not isinstance(repeat, int):
            return None
        return cls(task, repeat, int(row.get(ATTEMPT_INDEX_KEY) or 0))

    @property
    def rollout_id(self) -> str:
        """The published form: `<task>-<repeat>`, then `-a<attempt>` for a retry."""
        return f"{self.task}-{self.repeat}" + (f"-a{self.attempt}" if self.attempt else "")


def rollout_id_of_row(row: Mapping[str, Any]) -> str | None:
    """The row's own rollout id, or the one its key makes; None where it has neither.

    An explicit id that is not a legal one (`ROLLOUT_ID_PATTERN`) raises `ValueError`.
    """
    explicit = row.get(ROLLOUT_ID_KEY)
    if explicit is None:
        key = RolloutKey.of_row(row)
        return key.rollout_id if key else None
    if not isinstance(explicit, str) or not ROLLOUT_ID_PATTERN.fullmatch(explicit):
        raise ValueError(f"{ROLLOUT_ID_KEY} {explicit!r} is not a rollout id: letters, digits, '.', '_' and '-' only")
    attempt = int(row.get(ATTEMPT_INDEX_KEY) or 0)
    return explicit + (f"-a{attempt}" if attempt else "")


class BaseRunRequest(BaseModel):
    """A dataset row as the agent receives it. Subclasses type the further fields that they use."""

    responses_create_params: ResponseCreateParams


class BaseVerifyRequest(BaseRunRequest):
    """The row, and what the agent did with it."""

    response: Response


class BaseVerifyResponse(BaseVerifyRequest):
    """The row, the response and the reward."""

    reward: float
    mask_sample: bool = Field(default=False, exclude_if=not_)
    """Whether training must skip this rollout, for example because its sandbox broke down after it earned nothing."""

    @classmethod
    def grade(cls, body: BaseVerifyRequest, reward: float, **fields: Any) -> Graded:
        """Return a response that echoes the whole request, extra fields included, and adds `fields`.

        `mask_sample=True` keeps the rollout but excludes it from training; `failure_kind` and `failure_reason` may say
        why.
        """
        echoed = {name: value for name, value in body if name in body.model_fields_set}
        return Graded.model_construct(**{**echoed, "reward": reward, **fields})


class Graded(BaseVerifyResponse):
    """A graded rollout that may carry any further field; `BaseVerifyResponse.grade` makes them."""

    model_config = ConfigDict(extra="allow")


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A reward, and the parts it was made of."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """The row, before the rollout begins. Subclasses type the fields that they use."""


class BaseSeedSessionResponse(BaseModel):
    """What the agent is told of the new session."""


class ResourcesSeedSessionRequest(BaseSeedSessionRequest):
    """A session that its caller names, for a task whose own data come apart from the row."""

    model_config = ConfigDict(extra="allow")

    resources_session_id: str | None = None
    episode_id: str | None = None
    task_id: str | None = None
    task_data: dict[str, Any] | None = None


class ResourcesSeedSessionResponse(BaseSeedSessionResponse):
    """What the caller is told of the new session."""

    model_config = ConfigDict(extra="allow")


class ResourcesCloseSessionRequest(BaseModel):
    """The end of a session; which one, its cookie says."""

    model_config = ConfigDict(extra="allow")


class ResourcesCloseSessionResponse(BaseModel):
    """Whether anything was kept of the session that has ended."""

    model_config = ConfigDict(extra="allow")

    closed: bool = True


class AgentSeedSessionRequest(BaseModel):
    """The beginning of an agent's session, for callers that keep one over several requests."""

    model_config = ConfigDict(extra="allow")

    agent_session_id: str | None = None
    resources_session_id: str | None = None
    episode_id: str | None = None
    task_id: str | None = None
    task_data: dict[str, Any] | None = None


class AgentSeedSessionResponse(BaseModel):
    """The session that was opened."""

    model_config = ConfigDict(extra="allow")

    agent_session_id: str | None = None


class AgentCloseSessionRequest(BaseModel):
    """The end of an agent's session."""

    model_config = ConfigDict(extra="allow")

    agent_session_id: str | None = None


class AgentCloseSessionResponse(BaseModel):
    """Whether the session has ended."""

    model_config = ConfigDict(extra="allow")

    agent_session_id: str | None = None
    closed: bool = True


class AggregateMetricsRequest(BaseModel):
    """All verify responses of an agent, without their texts."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Metrics per task, per agent, and the few that stand for the rest."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


class ReverifyMode(StrEnum):
    """Whether a stored rollout can be graded again without its session."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"
