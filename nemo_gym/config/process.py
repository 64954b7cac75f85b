"""All that one process is told of a run: a server's, and the head server's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.models import Origin, RunConfig, ServerConfig
from nemo_gym.config.secret_values import SecretValues, handed_environment
from nemo_gym.config.settings import BaseServerConfig, ServerType


class OtherServer(NamedTuple):
    """What a server knows of another one: where it listens."""

    type: ServerType
    implementation: str
    host: str
    port: int


class ProcessSettings(BaseModel):
    """A server's own block, the plain values that all share, and where the others listen; never their settings."""

    # `.inf` is a number in YAML; JSON of the strict kind has only null for it.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    kind: Literal["server"] = "server"
    name: str
    type: ServerType
    implementation: str
    entrypoint: str
    folder: Path
    host: str
    port: int
    settings: dict[str, Any]
    origins: dict[str, Origin] = Field(default_factory=dict)
    plain: dict[str, Any] = Field(default_factory=dict)
    addresses: dict[str, OtherServer] = Field(default_factory=dict)
    """The other servers, by each name that they have."""
    shortcuts: dict[str, str] = Field(default_factory=dict)
    """Unix sockets at which some of them listen too."""
    head: BaseServerConfig
    cookie_secret: str
    """Signs the session cookies; the same for all workers of a run."""
    run_token: str | None = Field(default=None, repr=False)
    """Goes with every call between the servers of a run that can be reached from outside; None where none can."""
    run_id: str = ""
    """Goes with every call; calls that are meant for another run are turned away."""
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    """Variables that its process adds to its environment, where others do not see them."""
    num_workers: int = 1
    """How many processes serve it."""
    number: int = 0
    """Which of them this one is."""
    sockets: list[str] = Field(default_factory=list)
    """Where each of them alone listens, by its number, as the path of a unix socket; empty where there is but one."""
    dry_run: bool = False

    @classmethod
    def of(cls, run: RunConfig, server: ServerConfig, *, cookie_secret: str, **told: Any) -> Self:
        """What this server of a run is told, once all addresses are known; `told` are fields of this class."""
        return cls(
            name=server.name,
            type=server.type,
            implementation=server.implementation,
            entrypoint=server.entrypoint,
            folder=server.folder,
            host=server.host,
            port=server.port,
            settings=server.settings,
            origins=dict(server.origins),
            plain=dict(run.plain),
            addresses={
                name: OtherServer(other.type, other.implementation, other.host, other.port)
                for name, other in run.by_any_name()
                if name != server.name
            },
            shortcuts=dict(run.shortcuts),
            head=BaseServerConfig(host=run.head.host, port=run.head.port),
            cookie_secret=cookie_secret,
            run_token=run.run_token,
            run_id=run.run_id,
            environment=handed_environment(
                {**run.plain, server.name: server.settings},
                [other.settings for other in run.servers.values() if other.name != server.name],
            ),
            **told,
        )

    def secrets(self) -> SecretValues:
        """All secrets that this process is told."""
        own = {"cookie_secret": self.cookie_secret, "run_token": self.run_token}
        return SecretValues.of(self.settings, self.plain, self.environment, own)


class GroupSettings(BaseModel):
    """What a process is told that has several servers."""

    kind: Literal["group"] = "group"
    members: list[ProcessSettings]


class ServerInstance(BaseModel):
    """One running server."""

    process_name: str
    server_type: str
    name: str
    """The implementation."""
    dir_path: str
    entrypoint: str
    host: str
    port: int
    url: str
    pid: int
    config_path: str
    """The instance's name in the configuration."""
    start_time: float
    """Seconds since the epoch."""
    num_workers: int = 1
    """How many processes serve it."""
    restarts: int = 0
    """How often a process of it died and was started again."""
    process: str = ""
    """What its process is called: by its own name, or `together`."""
    pids: list[int] = Field(default_factory=list)
    """Of all processes that serve it, by their numbers."""
    sockets: list[str] = Field(default_factory=list)
    """Where each of them alone listens; empty where there is but one."""

    @property
    def where(self) -> str:
        """Its processes, and what they are called where other servers live in them too."""
        pids = " ".join(map(str, self.pids or [self.pid]))
        return pids if self.process in ("", self.config_path) else f"{pids} ({self.process})"

    @classmethod
    def of(cls, server: ServerConfig, *, process: str, pids: list[int], sockets: list[str], started_at: float) -> Self:
        """The server that these processes serve; `started_at` is in seconds since the epoch."""
        return cls(
            process_name=server.name,
            server_type=server.type,
            name=server.implementation,
            dir_path=str(server.folder),
            entrypoint=server.entrypoint,
            host=server.host,
            port=server.port,
            url=server.url,
            pid=pids[0],
            config_path=server.name,
            start_time=started_at,
            num_workers=len(pids),
            process=process,
            pids=pids,
            sockets=sockets,
        )


class HeadSettings(BaseModel):
    """What the head server tells. A server that was started again follows as a `ServerInstance` in the same pipe."""

    kind: Literal["head"] = "head"
    host: str
    port: int
    instances: list[ServerInstance]
    config_yaml: str
    """Masked, unless the run exposes its secrets on a loopback address."""
    endpoints: list[str] = Field(default_factory=list)
    """What the model servers ask; the run is not ready before each of them has answered."""
    run_token: str | None = Field(default=None, repr=False)
    """Goes with every call to it; None where it asks for nothing."""


ChildSettings = Annotated[ProcessSettings | GroupSettings | HeadSettings, Field(discriminator="kind")]
"""What comes through the pipe of a new process, as its first line."""
