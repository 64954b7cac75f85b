"""The load of the servers of a run."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym.calls.client import UNAUTHORISED, ServerClient, wants_token
from nemo_gym.calls.running import run_token_for, tls_for
from nemo_gym.config.models import HeadConfig
from nemo_gym.config.process import ServerInstance
from nemo_gym.config.settings import http_url
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.errors import HeadServerNotFoundError, LaunchError, ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import NotTrusted, Timeouts
from nemo_gym.http.tls import needs_tls, speaks_tls
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.rollout import run_headers
from nemo_gym.text import counted

HEAD_TIMEOUTS = Timeouts(connect_s=5.0, read_s=5.0, total_s=10.0)
STARTING_S = 120.0
"""Seconds after a restart during which a server that does not answer counts as starting."""
ADVICE = "Start servers with ng_run, or pass the address of a run: --head_server.host … --head_server.port …"
MEBIBYTE = 1024 * 1024
SERVER_ERROR = 500
COUNTED = ("in_flight", "queued", "requests", "errors", "refused", "kept", "moved")
"""The numbers of a server's load that are also those of `ServerLoad`."""
SUMMED = (*COUNTED, "queue_seconds", "cpu_seconds", "processes")
"""The numbers that are added for a server with several processes."""
Tier = Literal["model", "agent", "environment"]
TIERS: dict[str, Tier] = {
    "responses_api_models": "model",
    "responses_api_agents": "agent",
    "resources_servers": "environment",
}
"""The tier of each type of server."""

_SAMPLES = re.compile(r"^nemo_gym_(\w+)\{server=\"[^\"]*\"\} ([-+.e\d]+)$", re.MULTILINE)
_BLOCKS = re.compile(
    r'^nemo_gym_blocked_seconds_total\{server="[^"]*",route="(.*)",place="(.*)"\} ([-+.e\d]+)$', re.MULTILINE
)
_REQUESTS = re.compile(r"^nemo_gym_requests_total\{.*,status=\"(\d+)\"\} (\d+)$", re.MULTILINE)


class Load(BaseModel):
    """The load of one process of a server, or of all its processes together."""

    in_flight: int
    """Requests that are being handled."""
    queued: int
    """Requests that wait for a free slot."""
    queue_seconds: float
    """Total seconds that requests have waited for a slot."""
    loop_lag_s: float
    """The latest lag of the event loop. For several processes, the largest of their latest lags."""
    cpu_seconds: float
    """Seconds of CPU time used so far."""
    memory_bytes: int | None
    """Resident memory; None if the system does not report it."""
    requests: int
    """Requests answered so far."""
    errors: int
    """Requests answered with a status of 500 or more so far."""
    refused: int
    """Requests that were rejected because the queue was full."""
    kept: int = 0
    moved: int = 0
    """Calls that went to the engine of their rollout's earlier calls (`kept`), or to another one (`moved`)."""
    blocked_s: dict[str, float] = {}
    """Seconds in which each handler has blocked the event loop so far: the path, and the line in parentheses."""
    processes: int = 1
    """Number of processes that have reported their load."""
    at: float
    """The time of the measurement, in seconds since the epoch."""

    def __add__(self, other: Load) -> Load:
        memory = [each for each in (self.memory_bytes, other.memory_bytes) if each is not None]
        return Load(
            **{name: getattr(self, name) + getattr(other, name) for name in SUMMED},
            loop_lag_s=max(self.loop_lag_s, other.loop_lag_s),
            memory_bytes=sum(memory) if memory else None,
            blocked_s=dict(Counter(self.blocked_s) + Counter(other.blocked_s)),
            at=max(self.at, other.at),
        )


def load_of(text: str) -> Load | None:
    """Parse the load from the text of `/metrics`. Return None if the metrics are not those of a nemo_gym server."""
    found = {name: float(value) for name, value in _SAMPLES.findall(text)}
    answered = [(int(status), int(count)) for status, count in _REQUESTS.findall(text)]
    memory = found.get("process_resident_memory_bytes")
    try:
        return Load(
            in_flight=int(found["requests_in_flight"]),
            queued=int(found["requests_queued"]),
            queue_seconds=found["queue_seconds_total"],
            loop_lag_s=found["event_loop_lag_seconds"],
            cpu_seconds=found["process_cpu_seconds_total"],
            memory_bytes=None if memory is None else int(memory),
            requests=sum(count for _, count in answered),
            errors=sum(count for status, count in answered if status >= SERVER_ERROR),
            refused=int(found["requests_refused_total"]),
            kept=int(found.get("calls_kept_total", 0)),
            moved=int(found.get("calls_moved_total", 0)),
            blocked_s={f"{path} ({place})": float(seconds) for path, place, seconds in _BLOCKS.findall(text)},
            at=time.time(),
        )
    except KeyError:
        return None


class ServerLoad(BaseModel):
    """One server of a run and its load. `ServerLoad` in `viewer/src/api.ts` must have the same fields."""

    model_config = ConfigDict(frozen=True)

    name: str
    tier: Tier
    address: str
    state: Literal["up", "starting", "down"]
    problem: str | None
    """The reason why the server is not up, or how many of its workers do not answer; None if there is no problem."""
    in_flight: int | None
    """Requests that are being handled. This and the other numbers are None if the server has not reported its load."""
    queued: int | None
    loop_lag_ms: float | None
    cpu_percent: float | None
    """CPU time since the previous reading, in percent of one core; None if unknown, as in the first reading."""
    memory_mb: float | None
    """Resident memory in MiB."""
    requests: int | None
    errors: int | None
    refused: int | None
    requests_per_s: float | None
    """Requests per second since the previous reading; None if unknown, as in the first reading."""
    errors_per_s: float | None
    kept: int | None
    moved: int | None
    """Of a model server with several engines: the counts of `Load`."""


class _Rates(NamedTuple):
    """The increase of each counter per second between two readings."""

    cpu: float
    requests: float
    errors: float


class LoadReader:
    """A reader of the server loads that a head server reports. Each reading has the rates since the previous one."""

    def __init__(self, head: HeadConfig, run_token: str | None = None) -> None:
        """Use the run token that is known on this machine unless `run_token` is given."""
        self._head = head
        self._run_token = run_token
        self._client = InternalClient(tls=tls_of(head))
        self._previous: dict[str, tuple[ServerInstance, Load]] = {}

    async def read(self) -> list[ServerLoad]:
        """Return the load of every server. Raise `LaunchError` if the head server does not answer within 10 s."""
        listed = await ask_for_servers(self._client, self._head, self._run_token)
        loads = [self._server_load(entry) for entry in listed]
        self._previous = {
            entry["config_path"]: (ServerInstance.model_validate(entry), load)
            for entry in listed
            if (load := _reported(entry)) is not None
        }
        return loads

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _server_load(self, entry: Mapping[str, Any]) -> ServerLoad:
        instance, load = ServerInstance.model_validate(entry), _reported(entry)
        answers = entry["status"] == "success"
        was_restarted = instance.restarts > 0 and entry["uptime_seconds"] < STARTING_S
        rates = self._rates(instance, load)
        return ServerLoad(
            name=instance.config_path,
            tier=TIERS[instance.server_type],
            address=instance.url,
            state="up" if answers else "starting" if was_restarted else "down",
            problem=_problem(instance, entry["status"], load),
            **{name: getattr(load, name, None) for name in COUNTED},
            loop_lag_ms=load and load.loop_lag_s * 1000,
            cpu_percent=rates and 100 * rates.cpu,
            memory_mb=load.memory_bytes / MEBIBYTE if load and load.memory_bytes is not None else None,
            requests_per_s=rates and rates.requests,
            errors_per_s=rates and rates.errors,
        )

    def _rates(self, instance: ServerInstance, load: Load | None) -> _Rates | None:
        before, earlier = self._previous.get(instance.config_path, (None, None))
        if before is None or earlier is None or load is None:
            return None
        # Rates are unknown if a new process has started its counters at 0, or if a process has not reported them.
        if before.pids != instance.pids or earlier.processes != load.processes:
            return None
        seconds = load.at - earlier.at
        counts = (
            load.cpu_seconds - earlier.cpu_seconds, load.requests - earlier.requests, load.errors - earlier.errors,
        )  # fmt: skip
        if seconds <= 0 or min(counts) < 0:
            return None
        return _Rates(*(count / seconds for count in counts))


def _reported(entry: Mapping[str, object]) -> Load | None:
    """Return the load in a head server's entry; None if the load is missing or incomplete."""
    try:
        return Load.model_validate(entry["load"])
    except (KeyError, ValidationError):
        return None


def _problem(instance: ServerInstance, status: str, load: Load | None) -> str | None:
    if status != "success":
        return "does not answer" if status == "timeout" else "refuses connections"
    if load is None:
        return "reports no metrics"
    if missing := instance.num_workers - load.processes:
        return f"{missing} of {counted(instance.num_workers, 'worker')} {'does' if missing == 1 else 'do'} not answer"
    return None


async def loads_of(client: ServerClient) -> dict[str, Load]:
    """Return the load of each of a run's servers so far, by name, without those that do not report it.

    Return nothing if the head server does not answer, because the numbers only serve warnings and records.
    """
    book, address = client.address_book, client.head_server_config
    head = HeadConfig(host=address.host, port=address.port)
    async with InternalClient(tls=book.tls) as connections:
        try:
            listed = await ask_for_servers(connections, head, book.run_token)
        except LaunchError:
            return {}
    return {entry["config_path"]: load for entry in listed if (load := _reported(entry)) is not None}


def tls_of(head: HeadConfig) -> Tls | None:
    """Return the TLS settings for a head server: the configured ones, or else those recorded on this machine."""
    return head.tls or tls_for(head.host, head.port)


async def ask_for_servers(client: InternalClient, head: HeadConfig, run_token: str | None = None) -> list[JsonObject]:
    """Return the servers that a head server lists. Raise `LaunchError` on failure, such as a rejected token."""
    address = http_url(head.host, head.port, scheme_of(client.tls))
    token = run_token or run_token_for(head.host, head.port)
    headers = run_headers(token)
    try:
        reply = await client.request(
            "GET", head.host, head.port, "/server_instances", headers=headers, timeouts=HEAD_TIMEOUTS
        )
        if reply.status == UNAUTHORISED:
            raise LaunchError(wants_token(address))
        servers = orjson.loads(reply.body)
    except ServerCallError as error:
        if client.tls is None and await asyncio.to_thread(speaks_tls, head.host, head.port):
            raise HeadServerNotFoundError(f"{needs_tls(address)}.") from error
        if isinstance(error, NotTrusted):
            raise HeadServerNotFoundError(f"{error}.") from error
        if not error.was_sent:
            raise HeadServerNotFoundError(
                f"no servers are running: no head server answers at {address}. {ADVICE}"
            ) from error
        raise LaunchError(f"the head server at {address} did not answer ({error}). {ADVICE}") from error
    except orjson.JSONDecodeError:
        servers = None
    if not isinstance(servers, list):
        raise LaunchError(f"the server at {address} is not a nemo_gym head server. {ADVICE}")
    return servers
