"""What a server class knows of its own block: the typed settings that authors subclass."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from nemo_gym.schemas.rollout import ReverifyMode

ServerType = Literal["resources_servers", "responses_api_agents", "responses_api_models"]
SERVER_TYPES: tuple[ServerType, ...] = ("resources_servers", "responses_api_agents", "responses_api_models")
AGENT_TIER: ServerType = "responses_api_agents"
MODEL_TIER: ServerType = "responses_api_models"
RESOURCES_TIER: ServerType = "resources_servers"
ENVIRONMENT_SERVERS = "environment_servers"
"""Where a tier is named: a block that is only another name of an agent."""


class Domain(StrEnum):
    """What an environment is about."""

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
    """Names a model server instance."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """Names a resources server instance."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """Names an agent server instance."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = ModelServerRef | ResourcesServerRef | AgentServerRef


class BaseServerConfig(BaseModel):
    """Where a server listens, and with how many workers."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """A server that is started from a folder."""

    entrypoint: str
    domain: Domain | None = None
    isolated: bool = False
    """Run it in an environment of its folder's own, with what its requirements.txt lists."""
    workers: int | None = Field(default=None, ge=1)
    """The same as `num_workers`: so many processes serve it, and a rollout stays with the one that has its session."""
    placement: Literal["separate", "together"] | None = None
    """`separate` keeps it in a process of its own where the run's placement is `together`."""
    max_requests_in_flight: int | None = Field(default=None, ge=1)
    """So many calls are at work at once; further ones wait (16384)."""
    max_requests_queued: int | None = Field(default=None, ge=0)
    """So many calls wait; further ones hear 503 and come again (16384)."""
    max_request_bytes: int | None = Field(default=None, ge=1)
    """The longest body of a request (256 MiB)."""
    max_request_depth: int | None = Field(default=None, ge=1)
    """How deep the brackets of a request's body nest at most (100)."""
    blocking_threads: int | None = Field(default=None, ge=1)
    """So many handlers that are plain functions run at once, each in a thread (32)."""


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """A server with the name that the configuration gives it."""

    name: str


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """Settings of a resources server."""

    expose_tools_over_mcp: bool = False
    session_idle_s: float = 3600.0
    """A rollout's state is dropped after lying idle for this long."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """Settings of an agent server."""

    skip_verification: bool = False
    skip_verification_reward: float = 0.0
    token_id_capture: bool = False


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Settings of a model server."""
