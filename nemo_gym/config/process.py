"""The settings that the launcher passes to a server process or to the head server."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.hosts import is_any_address, loopback_of
from nemo_gym.config.models import Origin, PlacedServer, RunConfig, ServerConfig
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.secret_values import SecretValues, handed_environment
from nemo_gym.config.settings import RESOURCES_TIER, BaseServerConfig, ServerType, http_url
from nemo_gym.config.shared_run import SharedRun
from nemo_gym.config.tls import Tls
from nemo_gym.jsonl import JsonObject


class OtherServer(NamedTuple):
    """The type and the address of another server of the run."""

    type: ServerType
    implementation: str
    host: str
    port: int


class ProcessSettings(PlacedServer):
    """The settings of one server process, with the addresses of other servers, but without those servers' settings."""

    # Serialize infinity as a constant, because YAML allows `.inf`, which pydantic would otherwise write as null.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    kind: Literal["server"] = "server"
    origins: dict[str, Origin] = Field(default_factory=dict)
    plain: JsonObject = Field(default_factory=dict)
    addresses: dict[str, OtherServer] = Field(default_factory=dict)
    """The other servers, by name and alias."""
    aliases: dict[str, str] = Field(default_factory=dict)
    """The aliases of agents, each mapped to its agent's name. Empty if the run has one machine."""
    shortcuts: dict[str, str] = Field(default_factory=dict)
    """Unix sockets on which some of the other servers also listen, by name and alias."""
    head: BaseServerConfig
    cookie_secret: str
    """The key that signs session cookies. All workers have the same key."""
    run_token: str | None = Field(default=None, repr=False)
    """The token that is sent with every call between servers, or None if the run is open."""
    tls: Tls | None = None
    run_id: str = ""
    """The run's id, which is sent with every call. Calls with another run's id are rejected."""
    member: str = ""
    """The unique id of this machine's part of the run. Empty if the run has one machine."""
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    """Environment variables that the process sets after its start, so that other users cannot read them."""
    num_workers: int = 1
    number: int = 0
    """The index of this process among the processes of the server, from 0."""
    sockets: list[str] = Field(default_factory=list)
    """The path of each worker's own unix socket, by worker number. Empty for a single worker."""
    log_file: str = ""
    """The path of this process's log, for failure messages. Empty if the launcher does not write a log."""
    dry_run: bool = False
    ready_timeout_s: float | None = None
    """Seconds after which the launcher stops waiting for this process to start. None if no launcher waits."""

    @cached_property
    def of_run(self) -> RunSettings:
        """The top-level keys with a fixed meaning."""
        return RunSettings.model_validate(self.plain)

    @classmethod
    def of(cls, run: RunConfig, server: ServerConfig, *, cookie_secret: str, **extra: object) -> Self:
        """Return the settings of one server. All addresses must be known already. `extra` sets further fields."""
        return cls(
            **{name: getattr(server, name) for name in PlacedServer.model_fields}
            | {"settings": server.settings | _spoken(run, server)},
            origins=dict(server.origins),
            plain=dict(run.plain),
            addresses={
                name: OtherServer(other.type, other.implementation, other.local_host, other.port)
                for name, other in run.by_any_name()
                if name != server.name
            },
            aliases=dict(run.aliases) if run.member else {},
            shortcuts=dict(run.shortcuts),
            head=BaseServerConfig(host=loopback_of(run.head.host), port=run.head.port),
            cookie_secret=cookie_secret,
            run_token=run.run_token,
            tls=run.tls,
            run_id=run.run_id,
            member=run.member,
            environment=handed_environment(
                {**run.plain, server.name: server.settings},
                [other.settings for other in run.servers.values() if other.name != server.name],
            ),
            **extra,
        )

    def secrets(self) -> SecretValues:
        """Return all secrets that these settings contain."""
        own = {"cookie_secret": self.cookie_secret, "run_token": self.run_token}
        return SecretValues.of(self.settings, self.plain, self.environment, own)


def _spoken(run: RunConfig, server: ServerConfig) -> JsonObject:
    """Return the setting `also_serve` and the datasets of all agents that use the server. Empty if it is not set."""
    kinds = server.settings.get("also_serve", run.plain.get("also_serve"))
    if not kinds or server.type != RESOURCES_TIER:
        return {}
    users = [server, *(each for each in run.servers.values() if each.referred("resources_server") == server.name)]
    return {"also_serve": kinds, "datasets": [dataset.model_dump() for each in users for dataset in each.datasets]}


class ServerInstance(BaseModel):
    """A running server, as the head server lists it."""

    process_name: str
    server_type: str
    name: str
    """The server's implementation, which is the name of its folder."""
    dir_path: str
    entrypoint: str
    host: str
    port: int
    url: str
    pid: int
    config_path: str
    """The instance's name in the configuration."""
    start_time: float
    """The start time in seconds since the epoch."""
    num_workers: int = 1
    restarts: int = 0
    """The number of times that a process of the server died and was restarted."""
    pids: list[int] = Field(default_factory=list)
    """The process ids of all workers of the server, by worker number."""
    sockets: list[str] = Field(default_factory=list)
    """The path of each worker's own unix socket. Empty for a single worker."""
    advertised_host: str = ""
    """The host by which other machines reach the server, if that is not `host`."""
    advertised_port: int = 0
    """The port by which other machines reach the server. It is 0 if they use `port`."""
    machine: str = ""
    """The name of the server's machine. Empty if the run has only one machine."""
    member: str = ""
    """The id of the part of the run that contains this server. Empty if the run has one machine."""
    shortcut: str = ""
    """The unix socket on which the server also listens, as `<machine id>:<path>`. Empty if there is none."""
    needs_one_process: bool = False
    """Whether the server must be a single process. It may then run on only one machine."""

    def reached_at(self, host: str) -> Self:
        """Return a copy with the address that remote callers must use.

        `host` is the name or address by which these callers reach the server's machine.
        """
        if not self.advertised_host and not self.advertised_port and not is_any_address(self.host):
            return self
        reached = self.advertised_host or (host if is_any_address(self.host) else self.host)
        port = self.advertised_port or self.port
        url = http_url(reached, port, self.url.partition(":")[0])
        return self.model_copy(update={"host": reached, "port": port, "url": url})

    @property
    def where(self) -> str:
        """The server's process ids and, if the run has several machines, the name of its machine."""
        pids = " ".join(map(str, self.pids or [self.pid]))
        return f"{pids} on {self.machine}" if self.machine else pids

    @classmethod
    def of(cls, server: ServerConfig, *, pids: list[int], sockets: list[str], started_at: float, **extra: Any) -> Self:
        """Return the entry of a running server. `started_at` is in seconds since the epoch."""
        return cls(
            process_name=server.name,
            server_type=server.type,
            name=server.implementation,
            dir_path=str(server.folder),
            entrypoint=server.entrypoint,
            host=server.host,
            port=server.port,
            advertised_host=server.advertised_host,
            advertised_port=server.advertised_port,
            url=server.url,
            pid=pids[0],
            config_path=server.name,
            start_time=started_at,
            num_workers=len(pids),
            pids=pids,
            sockets=sockets,
            **extra,
        )


class HeadSettings(BaseModel):
    """Settings of the head server, which reads them from a pipe.

    If a server restarts, its new `ServerInstance` is sent through the same pipe.
    """

    kind: Literal["head"] = "head"
    host: str
    port: int
    instances: list[ServerInstance]
    """The servers on the head server's machine."""
    expected: dict[str, OtherServer] = Field(default_factory=dict)
    """All servers of the configuration. Empty if the run has one machine."""
    run_id: str = ""
    config_yaml: str
    """The configuration, with masked secrets unless the run exposes them on a loopback address."""
    shared: SharedRun = SharedRun()
    endpoints: list[str] = Field(default_factory=list)
    """The endpoints of the model servers. The run is ready when every endpoint has answered."""
    run_token: str | None = Field(default=None, repr=False)
    """The token that calls to the head server must carry, or None if the run is open."""
    allowed_hosts: frozenset[str] = frozenset()
    """Additional host names by which browsers and proxies may call the head server."""
    tls: Tls | None = None


ChildSettings = Annotated[ProcessSettings | HeadSettings, Field(discriminator="kind")]
"""The settings that a new process reads from the first line of its pipe."""
