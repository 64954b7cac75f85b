"""Calls to the servers of a run, including headers, timeouts and retries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from http.cookies import Morsel
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from pydantic import BaseModel

from nemo_gym.calls.address_book import Address
from nemo_gym.config.settings import AGENT_TIER, MODEL_TIER, RESOURCES_TIER
from nemo_gym.context.current import Wait, current_work
from nemo_gym.context.deadline import CLOCK_SLACK_S, time_left_for_callee, time_left_s
from nemo_gym.context.rollout_id import ROLLOUT_PREFIX, current_rollout_id, rollout_path_prefix
from nemo_gym.context.rollout_id import maybe_rollout_id_from_run_body as rollout_id_in
from nemo_gym.context.spent import Spent
from nemo_gym.errors import Overloaded, RolloutTimedOut, ServerCallError
from nemo_gym.http.connection import RequestBody
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.raising import as_expected
from nemo_gym.http.reply import JSON_HEADER, NoFreeConnection, NotConnected, NotTrusted, Reply, ReplyTimedOut, Timeouts
from nemo_gym.http.retries import Backoff, seconds_of_retry_after
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.schemas.responses import MODEL_PATHS
from nemo_gym.schemas.rollout import (
    NOT_BEGUN_HEADER,
    POLICY_HEADER,
    ROLLOUT_HEADER,
    TIME_LEFT_HEADER,
)

if TYPE_CHECKING:
    from aiohttp import ClientTimeout

    from nemo_gym.calls.places import Place, Places

Cookies = Mapping[str, "str | Morsel[str]"]

# A restarting server refuses connections for a moment. Nothing was sent, so a retry is safe.
REFUSED_PATIENCE_S = 10.0
# A server whose machine is lost starts on another machine. On a cluster, that takes up to a minute.
MOVED_PATIENCE_S = 120.0
CONNECT_S = 5.0
UNKNOWN_ADDRESS = Address("", 0)
# An overloaded server rejects a request before any work, so a retry is safe.
OVERLOADED_PATIENCE_S = 120.0
BACKOFF = Backoff(first_s=0.05, factor=2, longest_s=2.0)
UNAVAILABLE = 503
PHASES = {"seed_session": "seed", "verify": "verify"}
"""The phase of a rollout that each route of a resources server belongs to. Most other routes are tools."""
OVER_MCP = "mcp"
"""The route for calls over MCP, whose bodies contain the names of the tools."""
NOT_TOOLS = frozenset({"close_session", "aggregate_metrics"})

_ROLLOUT = ROLLOUT_HEADER.encode()
_TIME_LEFT = TIME_LEFT_HEADER.encode()
_POLICY = POLICY_HEADER.encode()
DEFAULTS = Timeouts()


class WrittenRequest(JsonObject):
    """A request body that is already serialized as JSON, with headers. As a mapping, it has the same content."""

    text: RequestBody | Callable[[], RequestBody]
    """The JSON, or a function that serializes the request for each try."""
    headers: list[tuple[bytes, bytes]]


class Caller:
    """The part of a client that calls servers by name, with retries."""

    def __init__(
        self,
        connections: InternalClient,
        address_of: Callable[[str], Address],
        tier_of: Callable[[str], str | None],
        *,
        names_rollouts: bool = False,
    ) -> None:
        """With `names_rollouts`, add the rollout id to URL paths, for servers without nemo_gym's middleware."""
        self.connections = connections
        self.address_of = address_of
        self.tier_of = tier_of
        self.names_rollouts = names_rollouts
        self.run_headers: list[tuple[bytes, bytes]] = []
        """Headers that mark every call as part of the run."""
        self.shortcuts: dict[str, str] = {}
        """Unix sockets on which servers also listen, by server name. They exist only on the servers' machine."""
        self.places: Places | None = None
        """The look-up of addresses for each call, if the run has several machines; otherwise None."""
        self._addresses: dict[str, Address] = {}

    async def call(
        self,
        server_name: str,
        url_path: str,
        method: str,
        *,
        json: object = None,
        data: bytes | str | Callable[[], bytes] | None = None,
        cookies: Cookies | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, object] | None = None,
        timeouts: Timeouts | None = None,
        timeout: float | ClientTimeout | None = None,  # noqa: ASYNC109 - aiohttp's, which server folders pass on
    ) -> Reply:
        """Send one request with retries and return the reply. The arguments are those of `ServerClient.request`."""
        if timeout is not None:
            timeouts = Timeouts.of(timeout)
        head = self.run_headers.copy()
        if headers:
            head += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        body: RequestBody | Callable[[], RequestBody] = data.encode() if isinstance(data, str) else data or b""
        if json is not None:
            head.append(JSON_HEADER)
            if isinstance(json, WrittenRequest):
                body = json.text
                head += json.headers
            else:
                body = encode_json(json)
        if cookies:
            head.append((b"cookie", cookie_header(cookies)))
        work = current_work()
        if work.rollout_id:
            head.append((_ROLLOUT, work.rollout_id.encode()))
        if work.policy is not None and server_name in work.policy.servers:
            head.append((_POLICY, work.policy.header))
        if self.names_rollouts:
            url_path = _for_its_rollout(url_path, json, self.tier_of(server_name))
        path = f"{url_path}?{urlencode(params)}" if params else url_path
        reply = None
        call = _Call(url_path, server_name)
        try:
            with call:
                reply = await self._reply(call, _Request(method, path, body, head), timeouts)
        finally:
            if work.spent is not None:
                call.count(work.spent, method, self.tier_of(server_name), reply)
        if work.on_reply is not None:
            work.on_reply(reply)
        return reply

    async def _reply(self, call: _Call, asked: _Request, timeouts: Timeouts | None) -> Reply:
        method, path, body, head = asked
        host, port = self._addresses.get(call.server) or self._address_of(call.server)
        places, place, patience_s = self.places, None, REFUSED_PATIENCE_S
        while True:
            shortcut = self.shortcuts.get(call.server)
            headers, within = head, timeouts
            if places is not None:
                place, patience_s = await _found(places, call), MOVED_PATIENCE_S
                host, port, shortcut = place.host, place.port, place.shortcut
                headers, within = [*head, place.header], (timeouts or DEFAULTS).connecting_within(CONNECT_S)
            left_s = call.time_left_s()
            if left_s is not None:
                headers = [*headers, (_TIME_LEFT, b"%.3f" % time_left_for_callee(left_s))]
                within = (within or DEFAULTS).within(left_s)
            try:
                reply = await self.connections.request(
                    method,
                    host,
                    port,
                    path,
                    body=body() if callable(body) else body,
                    headers=headers,
                    timeouts=within,
                    uds=shortcut,
                )
            except ReplyTimedOut as error:
                call.time_left_s()
                raise as_expected(error.of_server(call.server)) from error.__cause__
            except NoFreeConnection as error:
                # Raise only if the call's own timeout ended the wait. At the rollout's deadline, `time_left_s` raises
                # before the next try.
                if left_s is None or (within or DEFAULTS).total_s < left_s:
                    raise as_expected(error.of_server(call.server)) from error.__cause__
                call.trouble = str(error)
                await call.pause()
                continue
            except ServerCallError as error:
                if shortcut is not None and not error.was_sent:
                    self._give_up(shortcut, call.server)
                    continue
                if places is not None and place is not None:
                    await places.avoid(place)
                if error.was_sent or isinstance(error, NotTrusted) or call.took_s > patience_s:
                    raise as_expected(error.of_server(call.server)) from error.__cause__
                call.trouble = str(error)
                await call.pause()
                continue
            if reply.status != UNAVAILABLE or NOT_BEGUN_HEADER not in reply.headers:
                return reply
            if call.took_s > OVERLOADED_PATIENCE_S:
                raise Overloaded(
                    f"{call.server} rejected {path} {call.tries} times in {call.took_s:.0f} s, because it was "
                    "overloaded. Run fewer rollouts at once, or add replicas of the server",
                    server=call.server,
                )
            call.trouble = "the server is overloaded"
            await call.pause(seconds_of_retry_after(reply.headers.get("retry-after")))

    def _give_up(self, shortcut: str, server: str) -> None:
        """Call a server at its address from now on, because its unix socket is on another machine or was deleted."""
        self.shortcuts.pop(server, None)
        if self.places is not None:
            self.places.failed.add(shortcut)

    def _address_of(self, server: str) -> Address:
        is_looked_up = self.places is not None and self.places.knows(server)
        address = self._addresses[server] = UNKNOWN_ADDRESS if is_looked_up else self.address_of(server)
        return address


async def _found(places: Places, call: _Call) -> Place:
    """Wait until a machine has the server, and return the place to call.

    Raise `ServerCallError` after a timeout, and `RolloutTimedOut` at the rollout's deadline.
    """
    while True:
        call.time_left_s()
        place = await places.find(call.server, current_work().rollout_id)
        if place is not None:
            return place
        call.trouble = places.why_missing(call.server)
        if call.took_s > MOVED_PATIENCE_S:
            raise as_expected(NotConnected(f"{call} after {call.took_s:.0f} s").of_server(call.server))
        await call.pause()


class _Request(NamedTuple):
    method: str
    path: str
    body: RequestBody | Callable[[], RequestBody]
    """The body, or a function that serializes it for each try."""
    head: list[tuple[bytes, bytes]]


class _Call(Wait):
    """The state of one call across all of its tries."""

    __slots__ = ("_began_at", "path", "server", "tries")

    server: str

    def __init__(self, path: str, server: str) -> None:
        super().__init__("")
        self.path = path
        self.server = server
        self.tries = 1
        self._began_at = time.monotonic()

    def __str__(self) -> str:
        target = f"{self.path} of {self.server}"
        return f"{target} ({self.trouble})" if self.trouble else target

    @property
    def took_s(self) -> float:
        """Seconds since the first try."""
        return time.monotonic() - self._began_at

    def count(self, spent: Spent, method: str, tier: str | None, reply: Reply | None) -> None:
        """Add this call, which has ended, to `spent`. `reply` is None if the call failed."""
        if tier == AGENT_TIER:
            # Count the calls that the agent made instead. It may be the caller itself.
            if reply is not None:
                spent.add_headers(reply.headers)
            return
        name = self.path.rpartition("/")[2]
        phase = PHASES.get(name)
        if phase is None and (tier == MODEL_TIER or self.path.endswith(MODEL_PATHS)):
            phase = "model"
        elif phase is None:
            if method != "POST" or name in NOT_TOOLS:
                return
            phase = "tools"
            if name != OVER_MCP:
                spent.add_tool(name.partition("?")[0], 1, reply is None or not reply.ok)
        spent.add(phase, self.took_s)

    def time_left_s(self) -> float | None:
        """Return the seconds until the rollout's deadline, if any. Raise `RolloutTimedOut` after the deadline."""
        ends_at = current_work().ends_at
        if ends_at is None:
            return None
        left_s = ends_at - time.monotonic()
        if left_s <= CLOCK_SLACK_S:
            waited = f", after {self.took_s:.1f} s" if self.tries > 1 or self.took_s > 1 else ""
            raise RolloutTimedOut(f"the rollout's time was over while calling {self}{waited}", server=self.server)
        return left_s

    async def pause(self, retry_after_s: float | None = None) -> None:
        """Wait before the next try. Pauses grow, have jitter, and end at the rollout's deadline at the latest."""
        pause_s = BACKOFF.pause_s(self.tries, retry_after_s)
        left_s = time_left_s()
        self.tries += 1
        await asyncio.sleep(pause_s if left_s is None else max(0.0, min(pause_s, left_s)))


def _for_its_rollout(url_path: str, body: object, tier: str | None) -> str:
    """Add the rollout's prefix to the URL path of a call to a resources server or a model server.

    The called server may lack nemo_gym's middleware, which reads the rollout from a header.
    """
    if url_path.startswith(ROLLOUT_PREFIX):
        return url_path
    if tier != RESOURCES_TIER and (tier != MODEL_TIER or url_path not in MODEL_PATHS):
        return url_path
    rollout_id = current_rollout_id()
    if rollout_id is None and url_path == "/verify":
        rollout_id = rollout_id_in(body)
    return rollout_path_prefix(rollout_id) + url_path


def encode_json(value: object) -> bytes:
    """Encode a request body. Pydantic models omit their unset fields, so that the receiver's defaults apply."""
    if isinstance(value, BaseModel):
        return value.model_dump_json(exclude_unset=True).encode()
    return dump_json(value, default=_json_default)


def _json_default(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def cookie_header(cookies: Cookies) -> bytes:
    """Return the value of a `Cookie` header for plain values or a `SimpleCookie`."""
    pairs = [f"{name}={each.coded_value if isinstance(each, Morsel) else each}" for name, each in cookies.items()]
    return "; ".join(pairs).encode("latin-1")
