"""Requests and responses of a rollout (seed, run, verify, aggregate), and the headers of calls between servers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Required, SupportsFloat, TypedDict

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from nemo_gym.schemas.responses import Response, ResponseCreateParams

ROLLOUT_HEADER = "x-nemo-gym-rollout"
"""Header with the rollout id, sent with every call between servers."""

MODEL_CALL_HEADER = "x-nemo-gym-model-call"
"""Header of a response with the id under which the model call was recorded."""

TIME_LEFT_HEADER = "x-nemo-gym-time-left"
"""Header with the seconds left for the rollout, sent with calls between servers."""
NOT_BEGUN_HEADER = "x-nemo-gym-not-begun"
"""Header of a 503 response: the server did not start the call for lack of capacity, so a retry is safe."""
TOOLS_HEADER = "x-nemo-gym-tools"
"""Header of an agent's reply with the numbers of calls and of failed calls of each tool, as JSON."""
FAILURE_HEADER = "x-nemo-gym-failure"
"""Header of a 200 response with an ungraded row: the failure class, for callers that do not read the body."""
INPUT_AT_HEADER = "x-nemo-gym-input-at"
"""Header with the byte offset of the input in a model request, so that a server can forward the input unparsed."""
POLICY_HEADER = "x-nemo-gym-policy"
"""Header with the policy that a row names, sent from an agent to its model server and to other agents."""
ADDED_ONLY_HEADER = "x-nemo-gym-added-only"
"""Header of a verify request whose sender needs only the added fields, and of a response with only these fields."""
GROUP_PATH = "/groups/verify"
"""Route of a resources server that verifies all rollouts of a task together.

The path has two segments, so that a model cannot call the route as a tool.
"""
RUN_ID_HEADER = "x-nemo-gym-run"
"""Header with the id of the run that a call is meant for, because another run may have taken over the port."""
RUN_TOKEN_HEADER = "x-nemo-gym-run-token"
"""Header with the run token, which servers with a public address require."""


def run_id_of_server(run_id: str, server: str) -> str:
    """Return the value of `RUN_ID_HEADER` for one server of a run on several machines."""
    return f"{run_id} {server}"


def run_headers(run_token: str | None, run_id: str = "") -> list[tuple[bytes, bytes]]:
    """Return the headers for a call's run token and run id. Omit the header of a missing or empty value."""
    named = {RUN_TOKEN_HEADER: run_token, RUN_ID_HEADER: run_id}
    return [(name.encode(), value.encode()) for name, value in named.items() if value]


FAILURE_MARKS = frozenset({"mask_sample", "failure_kind", "failure_reason"})
"""The fields of a verify response that mark a rollout without a valid reward."""


class BaseRunRequest(BaseModel):
    """A dataset row as the agent receives it. Subclasses declare the other fields that they use."""

    responses_create_params: ResponseCreateParams


class BaseVerifyRequest(BaseRunRequest):
    """The body of `/verify`: the row with the agent's response."""

    response: Response


class BaseVerifyResponse(BaseVerifyRequest):
    """The response to `/verify`: the row with the agent's response and the reward."""

    reward: float
    mask_sample: bool = False
    """Whether training must skip this rollout, for example because its sandbox broke and it has no valid reward."""
    failure_kind: str | None = None
    """The kind of failure that made the reward invalid or low, such as `sandbox`."""
    failure_reason: str | None = None
    """A description of the failure in words."""

    # Without a return type, because pydantic would take it for the schema of all fields.
    @model_serializer(mode="wrap")
    def _without_unset_marks(self, dump: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        """Leave out unset marks if the class is a verifier's own, because its author has listed its fields."""
        fields: dict[str, Any] = dump(self)
        if type(self) is not BaseVerifyResponse:
            for name in FAILURE_MARKS - self.model_fields_set:
                fields.pop(name, None)
        return fields

    @classmethod
    def grade(cls, body: BaseVerifyRequest, reward: float, **fields: Any) -> Graded:
        """Return a response that echoes the whole request, extra fields included, and adds `reward` and `fields`.

        `mask_sample=True` keeps the rollout but excludes it from training; `failure_kind` and `failure_reason` can
        explain why. Raise `TypeError` if the reward is not a number.
        """
        if not isinstance(reward, (int, float, SupportsFloat)):
            raise TypeError(f"grade: the reward must be a number, found {reward!r}")
        echoed = {name: value for name, value in body if name in body.model_fields_set}
        return Graded.model_construct(**{**echoed, "reward": reward, **fields})


class Graded(BaseVerifyResponse):
    """A response to `/verify` with any extra fields, made by `BaseVerifyResponse.grade`."""

    model_config = ConfigDict(extra="allow")


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A `verify()` response with a reward and its components."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """The body of `/seed_session`: the row of the rollout that starts. Subclasses declare the fields that they use."""


class BaseSeedSessionResponse(BaseModel):
    """The response to `/seed_session`. Subclasses may add fields, which the agent receives."""


class AggregateMetricsRequest(BaseModel):
    """The body of `/aggregate_metrics`: an agent's verify responses, without the model's prompts and outputs."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """The response to `/aggregate_metrics`: metrics of each task and of the agent, and a few key metrics."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


class LedgerOutcomes(TypedDict):
    """The numbers of an agent's rollouts by outcome, and of the failed ones by the cause of their last attempt."""

    planned: int
    scored: int
    failed: dict[str, int]
    unresolved: int


class AgentMetrics(TypedDict, total=False):
    """The metrics of one agent. A run adds `ledger`, and `failed_tasks`: those with failed rollouts and no score."""

    agent_ref: Required[dict[str, str]]
    integer_fields: list[str]
    """The fields that are integers in all rollouts."""
    group_level_metrics: list[dict[str, Any]]
    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]
    ledger: LedgerOutcomes
    failed_tasks: list[dict[str, object]]
    row_fields: list[str]
    """The numeric fields that the verifier only copied from the rows."""


class ReverifyMode(StrEnum):
    """Whether a stored rollout can be graded again without its session."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"
