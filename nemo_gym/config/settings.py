"""Typed settings of servers. Authors of servers subclass them to add settings of their own."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.config.ray import RayNeeds
from nemo_gym.schemas.rollout import ReverifyMode
from nemo_gym.schemas.tool_access import ToolAccess

ServerType = Literal["resources_servers", "responses_api_agents", "responses_api_models"]
SERVER_TYPES: tuple[ServerType, ...] = ("resources_servers", "responses_api_agents", "responses_api_models")
AGENT_TIER: ServerType = "responses_api_agents"
MODEL_TIER: ServerType = "responses_api_models"
RESOURCES_TIER: ServerType = "resources_servers"
POLICY_MODEL = "policy_model"
"""The name of the model server to which shipped configs refer."""
USED_IN_CHECKS = "used_in_checks"
"""The key that makes `ng env check` call a model server as a judge, instead of a fake judge."""
MODEL_FLAGS = {
    "policy_base_url": "--model-url",
    "policy_api_key": "--model-api-key",
    "policy_model_name": "--model",
}
"""The command-line flag for each key of the policy model."""


def flag_of(key: str) -> str:
    """Return the flag that messages suggest for a key of the configuration."""
    return MODEL_FLAGS.get(key, f"--{key}")


DUMMY_MODEL = "dummy_model"
"""A placeholder implementation of a model server. It allows reading a configuration without a chosen model."""
SAMPLE_MODEL = "sample_model"
"""The implementation of a model server that acts at random, so that no endpoint is needed."""
_BLANK = re.compile(r"\s")
_UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
ENVIRONMENT_SERVERS = "environment_servers"
"""The key, in place of a server type, of blocks that define an alias of an agent or a server that runs as an agent."""


LEAST_GROUP = 2
"""The smallest group: a single rollout cannot be compared with others."""


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
    """A reference to a model server of the same configuration."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """A reference to a resources server of the same configuration."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """A reference to an agent server of the same configuration."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = ModelServerRef | ResourcesServerRef | AgentServerRef


def http_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of a server, without a path. An IPv6 address is put in brackets."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class BaseServerConfig(BaseModel):
    """A server's address and number of workers."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """Settings of a server that is started from a folder."""

    entrypoint: str
    """The file, in the server's folder, that contains the server's class. Usually `app.py`."""
    domain: Domain | None = None
    """The subject of the environment, shown in lists of environments."""
    advertised_host: str | None = None
    """The host by which other machines reach the server, if that is not `host`."""
    advertised_port: int | None = Field(default=None, ge=1, le=65535)
    """The port by which other machines reach the server, if that is not `port`."""
    isolated: bool = False
    """Whether to run the server in its own virtual environment, with the packages that its folder requires."""
    ray: RayNeeds = RayNeeds()
    """The resources and nodes for each process of the server, if `launcher` is `ray`."""
    workers: int | None = Field(default=None, ge=1)
    """The number of processes. Overrides `num_workers`. Each rollout uses only the process that has its session."""
    max_requests_in_flight: int | None = Field(default=None, ge=1)
    """The maximum number of concurrent calls per process (default 16384). Further calls wait."""
    max_requests_queued: int | None = Field(default=None, ge=0)
    """The maximum number of waiting calls per process (default 16384). Further ones get status 503 and are retried."""
    max_request_bytes: int | None = Field(default=None, ge=1)
    """The maximum size of a request body in bytes (default 256 MiB; for `/aggregate_metrics`, 8 times as much)."""
    max_request_depth: int | None = Field(default=None, ge=1)
    """The maximum nesting depth of brackets in a request body (default 100)."""
    start_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds that the server may take to start, if longer than `ready_timeout_s`. Loading a model may need this."""
    blocking_threads: int | None = Field(default=None, ge=1)
    """The number of threads for handlers that are not `async` (default 32)."""


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """Settings of a server, with the name of its instance."""

    name: str


class GroupVerification(BaseModel):
    """Settings of a server whose `verify_group` verifies all rollouts of a task together. So far, there are none."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_earlier_setting(cls, given: object) -> object:
        if isinstance(given, dict) and (earlier := {"timeout_s", "size"} & given.keys()):
            raise ValueError(
                f"{min(earlier)} is no longer a setting, because rollouts do not wait for each other. Remove it"
            )
        return given


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """Settings of a resources server. Subclass it to add settings of your own."""

    expose_tools_over_mcp: bool = False
    """Whether the server also offers its tools over MCP, at `/mcp`."""
    session_idle_s: float = 3600.0
    """Seconds without a call after which the state of a rollout is deleted."""
    also_serve: list[str] = Field(default_factory=list)
    """Protocols of other frameworks that the server also speaks, such as `openenv` and `ors`."""
    datasets: list[dict[str, Any]] = Field(default_factory=list)
    """The tasks that `also_serve` offers. Added to them are the datasets of all agents that use the server."""
    mcp_servers: dict[str, Any] = Field(default_factory=dict)
    """MCP servers by name, each a command, a URL or its settings. Their tools join those of this server."""
    rows_may_add_servers: bool = False
    """Whether rows may name further `mcp_servers`. Their commands run on this machine, as its user."""
    mcp_limits: dict[str, float] = Field(default_factory=dict)
    """Limits of the `mcp_servers`, such as `tool_timeout_s`."""
    group_verification: GroupVerification | None = None
    """Required if the server's class overrides `verify_group`."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """Settings of an agent server. Subclass it to add settings of your own."""

    skip_verification: bool = False
    """Whether to skip grading and return the row with `skip_verification_reward`."""
    skip_verification_reward: float = 0.0
    """The reward of rollouts that are not graded."""
    token_id_capture: bool = False
    """Whether to record the token ids of this agent's model calls, if the block `token_id_capture` is enabled."""
    tool_accesses: list[ToolAccess] = Field(default_factory=list)
    """Tools that sessions of the agent can reach, unless their request names another access with the same name."""
    agent_session_idle_s: float = Field(default=21600.0, gt=0)
    """Seconds without a call after which an agent session is closed, if its caller has not closed it."""


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Settings of a model server. Subclass it to add settings of your own."""

    model_config = ConfigDict(hide_input_in_errors=True)

    used_in_checks: bool = False
    """Whether `ng env check` calls this server as a judge, instead of a fake judge that always agrees. Such a
    server must work without a network, and must always give the same answer."""

    @model_validator(mode="after")
    def _has_sendable_endpoint(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            if name.endswith("base_url") and any(isinstance(each, str) and _BLANK.search(each) for each in texts):
                raise ValueError(f"{name} has a space or a line break. Remove it")
            if name.endswith("api_key") and isinstance(value, str) and _UNSENDABLE.search(value):
                raise ValueError(f"{name} has a line break or another character that headers must not have. Remove it")
        return self
