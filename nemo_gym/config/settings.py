"""Typed settings of server classes, to be subclassed by authors."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.ray import RayNeeds
from nemo_gym.schemas.rollout import ReverifyMode

ServerType = Literal["resources_servers", "responses_api_agents", "responses_api_models"]
SERVER_TYPES: tuple[ServerType, ...] = ("resources_servers", "responses_api_agents", "responses_api_models")
AGENT_TIER: ServerType = "responses_api_agents"
MODEL_TIER: ServerType = "responses_api_models"
RESOURCES_TIER: ServerType = "resources_servers"
POLICY_MODEL = "policy_model"
"""The model server that shipped configs refer to."""
USED_IN_CHECKS = "used_in_checks"
"""The key of a model server by which `ng_check` calls the server instead of a fake judge."""
MODEL_FLAGS = {
    "policy_base_url": "--model-url",
    "policy_api_key": "--model-api-key",
    "policy_model_name": "--model",
}
"""The flags of the commands that start models."""
DUMMY_MODEL = "dummy_model"
"""An implementation without a folder, so that a configuration can be read without a model."""
SAMPLE_MODEL = "sample_model"
"""The implementation of a model server that needs no endpoint: a random policy."""
ENVIRONMENT_SERVERS = "environment_servers"
"""The key that replaces the server type in a block that defines an alias of an agent."""


DEPTH_KEY = "max_request_depth"
"""The key of a server's limit on the nesting depth of a request."""
GROUP_KEY = "group_verification"
"""The key in the block of a resources server that verifies all rollouts of a task together."""


class Domain(StrEnum):
    """The subject of an environment."""

    MATH = "math"
    CODING = "coding"
    AGENT = "agent"
    KNOWLEDGE = "knowledge"
    INSTRUCTION_FOLLOWING = "instruction_following"
    LONG_CONTEXT = "long_context"
    SAFETY = "safety"
    GAMES = "games"
    TRANSLATION = "translation"
    E2E = "e2e"
    RLHF = "rlhf"
    OTHER = "other"


class ModelServerRef(BaseModel):
    """Reference to a model server instance."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """Reference to a resources server instance."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """Reference to an agent server instance."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = ModelServerRef | ResourcesServerRef | AgentServerRef


def http_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of a server, without a path."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class BaseServerConfig(BaseModel):
    """A server's address and number of workers."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """Settings of a server that is started from a folder."""

    entrypoint: str
    """The file of the server's class in its folder, usually `app.py`."""
    domain: Domain | None = None
    """The subject of the environment, for lists."""
    advertised_host: str | None = None
    """The host by which other machines reach the server, if that is not `host`."""
    advertised_port: int | None = Field(default=None, ge=1, le=65535)
    """The port by which other machines reach the server, if that is not `port`."""
    isolated: bool = False
    """Run the server in its own virtual environment, with the packages of its requirements.txt."""
    ray: RayNeeds = RayNeeds()
    """The resources and nodes for each process of the server, if `launcher` is `ray`."""
    workers: int | None = Field(default=None, ge=1)
    """Same as `num_workers`: the number of processes. A rollout stays with the process that has its session."""
    max_requests_in_flight: int | None = Field(default=None, ge=1)
    """Maximum number of concurrent calls; further calls wait (default 16384)."""
    max_requests_queued: int | None = Field(default=None, ge=0)
    """Maximum number of waiting calls; further calls get a 503 and are retried (default 16384)."""
    max_request_bytes: int | None = Field(default=None, ge=1)
    """Maximum size of a request body (default 256 MiB)."""
    max_request_depth: int | None = Field(default=None, ge=1)
    """Maximum nesting depth of brackets in a request body (default 100)."""
    start_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds that the server may take to start, for example to load a model, if longer than `ready_timeout_s`."""
    blocking_threads: int | None = Field(default=None, ge=1)
    """Number of threads for handlers that are plain functions (default 32)."""


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """Settings of a server, with the name of its instance."""

    name: str


class GroupVerification(BaseModel):
    """Settings of a server whose `verify_group` verifies all rollouts of a task together."""

    model_config = ConfigDict(extra="forbid")

    timeout_s: float = Field(default=600.0, gt=0)
    """Seconds that a rollout waits for the others of its task. Then the rollouts that have arrived are verified."""
    size: int | None = Field(default=None, ge=2)
    """The number of rollouts per task, for callers that do not send it. A collection sends its number of repeats."""


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """Settings of a resources server."""

    expose_tools_over_mcp: bool = False
    """Also offer the tools over MCP, at `/mcp`."""
    session_idle_s: float = 3600.0
    """Seconds without a call after which a rollout's state is dropped."""
    group_verification: GroupVerification | None = None
    """Required if the server's class overrides `verify_group`."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """Settings of an agent server."""

    skip_verification: bool = False
    """Do not grade: return the row with `skip_verification_reward`."""
    skip_verification_reward: float = 0.0
    """The reward of rollouts that are not graded."""
    token_id_capture: bool = False
    """Record the token ids of this agent's model calls, if the block `token_id_capture` is enabled."""
    agent_session_idle_s: float = Field(default=21600.0, gt=0)
    """Seconds without a call after which an agent session is closed, if its caller has not closed it."""


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Settings of a model server."""

    used_in_checks: bool = False
    """Whether `ng_check` calls this server as a judge, instead of a fake judge that always agrees. Such a
    server must not need a network, and must always give the same answer."""
