"""The head server, which publishes the addresses of all servers and the configuration of the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nemo_gym.calls.client import RUN_PATH, ServerStatus
from nemo_gym.calls.loads import Load, load_of
from nemo_gym.config.masking import mask_text
from nemo_gym.config.process import HeadSettings, ServerInstance
from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.probe import trouble_of
from nemo_gym.http.reply import Timeouts
from nemo_gym.jsonl import JsonObject
from nemo_gym.process.members import Member, Members, add_member_routes
from nemo_gym.process.reached import Joined, host_reached, reachable_config
from nemo_gym.schemas.rollout import run_headers
from nemo_gym.web.admission import Admission
from nemo_gym.web.browsers import BrowserCheck
from nemo_gym.web.middleware import CallMiddleware
from nemo_gym.web.telemetry import METRICS_PATH, Telemetry

Shown = tuple[ServerInstance, Member | None]
"""A server and its `Member`. The member is None if the head server's own launcher has started the server."""

HEAD = "head_server"
ENDPOINT_TIMEOUT_S = 2.0
PROBE_TIMEOUTS = Timeouts(connect_s=2.0, read_s=2.0, total_s=2.0)


class Head:
    """The routes of the head server of one run."""

    def __init__(self, settings: HeadSettings) -> None:
        self._settings = settings
        self._client = InternalClient(tls=settings.tls)
        self._members = Members(settings)
        self._silent = set(settings.endpoints)
        """The endpoints that have never answered."""

    def app(self) -> FastAPI:
        """Return the app with all routes."""
        settings = self._settings
        app = FastAPI(title=HEAD)
        for paths, answer in (
            (("/", "/livez"), self.is_alive),
            (("/readyz", "/healthz", "/health"), self.is_ready),
        ):
            for path in paths:
                app.get(path)(answer)
                app.head(path, include_in_schema=False)(answer)
        app.get(RUN_PATH)(self.run)
        app.get("/global_config_dict_yaml")(self.global_config_dict_yaml)
        app.get("/server_instances")(self.server_instances)
        if settings.expected:
            add_member_routes(app, self._members)
        admission = Admission(
            server=HEAD,
            telemetry=Telemetry(HEAD),
            run_token=settings.run_token,
            run_id=settings.run_id,
            browsers=BrowserCheck(HEAD, settings.host, settings.allowed_hosts),
        )
        app.add_middleware(CallMiddleware, admission=admission)
        return app

    async def is_alive(self) -> dict[str, str]:
        return {"status": "ok"}

    async def is_ready(self) -> Response:
        """Report whether all servers and model endpoints answer. A 503 response lists those that do not answer."""
        shown = list(self._members.instances())
        answers = await self._statuses(shown)
        found = [(each.config_path, status) for (each, _), status in zip(shown, answers, strict=True)]
        # Count a server as ready if at least one of its replicas answers.
        answering = {name for name, status in found if status == "success"}
        missing = dict.fromkeys(self._members.missing(), "not started yet on any machine")
        missing |= {name: status for name, status in found if name not in answering}
        missing |= dict.fromkeys(await self._silent_endpoints(), "no answer yet")
        return JSONResponse({"status": "waiting" if missing else "ok", "missing": missing}, 503 if missing else 200)

    async def run(self, request: Request) -> Response:
        """Return the run as a `SharedRun`: its servers with addresses that the caller can use, and what they need."""
        host = host_reached(request)
        joined = self._joined(host)
        seen = self._settings.shared.reached_at(
            host, dict(joined), reachable_config(self._settings.config_yaml, host, joined)
        )
        return Response(seen.model_dump_json(exclude_defaults=True), media_type="application/json")

    async def global_config_dict_yaml(self, request: Request) -> str:
        """Return the merged configuration as YAML, with secrets masked and addresses that the caller can use."""
        host = host_reached(request)
        return reachable_config(self._settings.config_yaml, host, self._joined(host))

    def _joined(self, host: str) -> Joined:
        """Return the addresses of servers elsewhere, for callers that reach the head server by this host."""
        addresses = self._members.addresses(host) if self._settings.expected else {}
        return tuple((name, each[0][:2]) for name, each in addresses.items())

    async def server_instances(self, request: Request) -> list[JsonObject]:
        """Return every server with its address, its status and its load."""
        host = host_reached(request)
        shown = list(self._members.instances())
        loading = asyncio.gather(*(_load(self._client, each, self._settings.run_token) for each, _ in shown))
        loads, answers = await asyncio.gather(loading, self._statuses(shown))
        return [
            {
                **(instance.reached_at(host) if member is None else instance).model_dump(),
                "status": status,
                "uptime_seconds": time.time() - instance.start_time,
                "load": load and load.model_dump(),
            }
            for (instance, member), status, load in zip(shown, answers, loads, strict=True)
        ]

    async def _statuses(self, shown: list[Shown]) -> list[str]:
        return await asyncio.gather(*(_status(self._client, *each) for each in shown))

    async def _silent_endpoints(self) -> list[str]:
        """Return the endpoints that have never answered. Endpoints that have answered are not probed again."""
        asked = sorted(self._silent)
        troubles = await asyncio.gather(*(asyncio.to_thread(trouble_of, url, ENDPOINT_TIMEOUT_S) for url in asked))
        self._silent.difference_update(url for url, trouble in zip(asked, troubles, strict=True) if trouble is None)
        return [mask_text(url) for url in sorted(self._silent)]


def update_instances(settings: HeadSettings, lines: Iterable[bytes]) -> None:
    """Read new entries of restarted servers from `lines`, and replace the old entries, until the lines end."""
    for line in lines:
        new = ServerInstance.model_validate_json(line)
        settings.instances[:] = [
            new if known.config_path == new.config_path else known for known in settings.instances
        ]


async def _load(client: InternalClient, instance: ServerInstance, run_token: str | None) -> Load | None:
    # Query each process of a server at its own socket, because only one of them would answer at the server's address.
    sockets: list[str | None] = [*instance.sockets] or [None]
    found = await asyncio.gather(*(_load_of_process(client, instance, run_token, socket) for socket in sockets))
    loads = [load for load in found if load is not None]
    return sum(loads[1:], loads[0]) if loads else None


async def _load_of_process(
    client: InternalClient, instance: ServerInstance, run_token: str | None, socket: str | None
) -> Load | None:
    headers = run_headers(run_token)
    try:
        reply = await client.request(
            "GET", instance.host, instance.port, METRICS_PATH, headers=headers, timeouts=PROBE_TIMEOUTS, uds=socket
        )
    except ServerCallError:
        # Ignore the error, because the server's status or the number of reporting processes already shows the problem.
        return None
    return load_of(await reply.text()) if reply.ok else None


async def _status(client: InternalClient, instance: ServerInstance, member: Member | None) -> ServerStatus | str:
    if member is not None and member.is_lost:
        return f"lost: its machine has not reported for {member.silent_s:.0f} s"
    try:
        await client.request("GET", instance.host, instance.port, "/", timeouts=PROBE_TIMEOUTS)
    except ServerCallError as error:
        return "timeout" if error.was_sent else "connection_error"
    return "success"
