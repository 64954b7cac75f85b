"""Call another server by the name that the configuration gives it."""

from __future__ import annotations

import asyncio
import http.client
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.cookies import Morsel
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlencode

import orjson
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR, RUN_TOKEN_KEY, configured_token
from nemo_gym.config.models import RUN_ID_KEY, RunConfig
from nemo_gym.config.observability import CAPTURE_KEYS, is_enabled
from nemo_gym.config.published import maybe_get_global_config_dict, told_by
from nemo_gym.config.settings import AGENT_TIER, ENVIRONMENT_SERVERS, SERVER_TYPES, BaseServerConfig
from nemo_gym.errors import HeadServerNotFoundError, Overloaded, RolloutTimedOut, ServerCallError
from nemo_gym.http.correlation import (
    ROLLOUT_PREFIX,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    note_failure,
    rollout_path_prefix,
)
from nemo_gym.http.deadline import Wait, time_left_s, told_to_callee
from nemo_gym.http.external import seconds_of_retry_after
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Reply, ReplyTimedOut, Timeouts
from nemo_gym.http.runs import run_token_for
from nemo_gym.jsonl import dump_json
from nemo_gym.schemas.rollout import (
    FAILURE_HEADER,
    NOT_BEGUN_HEADER,
    ROLLOUT_HEADER,
    RUN_ID_HEADER,
    RUN_TOKEN_HEADER,
    TIME_LEFT_HEADER,
)

Cookies = Mapping[str, "str | Morsel[str]"]
ServerStatus = Literal["success", "connection_error", "timeout", "unknown_error"]

PUBLISHED_NAME = "nemo_gym.server_utils"
"""Where published folders import all of this from, and where their tests replace what the configuration says."""

HEAD_SERVER_KEY = "head_server"
POLL_TIMEOUT_S = 5.0

MODEL_TIER = "responses_api_models"
RESOURCES_TIER = "resources_servers"
MODEL_CALLS = ("/v1/responses", "/v1/chat/completions", "/v1/messages")

UNAUTHORISED = 401
HEAD_TIMEOUT_S = 10.0
# A server that restarts refuses connections for a moment; nothing was sent, so trying again is safe.
REFUSED_PATIENCE_S = 10.0
# A server that is full says so before it does anything.
OVERLOADED_PATIENCE_S = 120.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
# Timers may ring a little early, and what they end has ended for want of time all the same.
CLOCK_SLACK_S = 0.005


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class ServerClient(BaseModel):
    """Calls servers by instance name.

    Cookies go out only where the caller passes them, and come back in `reply.cookies`: two rollouts that
    share a client never see each other's session.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig

    _connections: InternalClient = PrivateAttr(default_factory=InternalClient)
    _addresses: dict[str, Address] = PrivateAttr(default_factory=dict)
    _run_headers: list[tuple[bytes, bytes]] = PrivateAttr(default_factory=list)
    """What goes with every call to show that it belongs to the run."""
    _is_observed: bool = PrivateAttr(default=False)
    """Whether the rollouts' model calls are recorded: then paths say for which rollout a call is."""

    def model_post_init(self, context: Any, /) -> None:
        self._is_observed = is_enabled(self.global_config_dict)

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Where the head server listens, by the configuration of this process."""
        return BaseServerConfig.model_validate(dict(told_by(PUBLISHED_NAME)[HEAD_SERVER_KEY]))

    @classmethod
    def load_from_global_config(cls, head_server_config: Any = None, run_token: str | None = None) -> Self:
        """A client that knows the servers of a run from its head server's configuration.

        Without `head_server_config` the head server is asked that the configuration of this process names; without
        `run_token` it is the configuration's, or the one that is known here of that run.
        Raises `LaunchError` (a `ValueError` too) that names the address where no head server answers.
        """
        head_server_config = head_server_config or cls.load_head_server_config()
        host, port = head_server_config.host, head_server_config.port
        run_token = run_token or configured_token(maybe_get_global_config_dict() or {}) or run_token_for(host, port)
        url = f"http://{host}:{port}/global_config_dict_yaml"
        # A proxy for the outside knows nothing of our own servers.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        asking = urllib.request.Request(url, headers={RUN_TOKEN_HEADER: run_token} if run_token else {})
        try:
            with opener.open(asking, timeout=HEAD_TIMEOUT_S) as answer:
                config = OmegaConf.create(orjson.loads(answer.read()))
            if not isinstance(config, DictConfig):
                raise ValueError("it answers something else than a configuration")
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == UNAUTHORISED:
                raise HeadServerNotFoundError(wants_token(f"http://{host}:{port}")) from error
            raise HeadServerNotFoundError(
                f"no head server answers at {url} ({str(error).strip()}). Start the servers with ng_run, or name the "
                "run with +head_server.host=… +head_server.port=…"
            ) from error
        return cls._to(head_server_config, config).of_this_run(run_token, str(config.get(RUN_ID_KEY) or ""))

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """A client for servers that this process has started."""
        blocks = {
            name: {server.type: {server.implementation: {"host": server.host, "port": server.port}}}
            for name, server in run.by_any_name()
        }
        captures = {key: run.plain[key] for key in CAPTURE_KEYS if key in run.plain}
        return cls._to(run.head, OmegaConf.create({**captures, **blocks})).of_this_run(run.run_token, run.run_id)

    @classmethod
    def _to(cls, head: Any, config: DictConfig) -> Self:
        return cls(head_server_config=BaseServerConfig(host=head.host, port=head.port), global_config_dict=config)

    def of_this_run(self, run_token: str | None, run_id: str) -> Self:
        """This client, which from now on tells with every call which run it is meant for, and the run's token."""
        told = {RUN_ID_HEADER: run_id, RUN_TOKEN_HEADER: run_token}
        self._run_headers = [(name.encode(), value.encode()) for name, value in told.items() if value]
        return self

    def address_of(self, server_name: str) -> Address:
        """Where an instance listens; `ServerCallError` names the instances there are."""
        address = self._addresses.get(server_name)
        if address is None:
            address = self._addresses[server_name] = _look_up(self.global_config_dict, server_name)
        return address

    def agent_names(self) -> list[str]:
        """The agents that can be called, also by the other names that `environment_servers` blocks give them."""
        return [str(name) for name in self.global_config_dict if _tier_of(self.global_config_dict, name) == AGENT_TIER]

    def _build_server_base_url(self, server_config_dict: Mapping[str, Any]) -> str:
        return f"http://{server_config_dict['host']}:{server_config_dict['port']}"

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> Reply:
        """Send one request and wait for the whole answer, whatever its status.

        Keywords: `json` (a pydantic model, sent without its unset fields, or anything that orjson writes), `data`
        (bytes or text), `cookies`, `headers`, `params`, `timeouts`.
        Raises `ServerCallError` where no answer came.
        """
        return await self._send(server_name, url_path, method, **kwargs)

    async def get(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        """`request` with GET."""
        return await self._send(server_name, url_path, "GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        """`request` with POST."""
        return await self._send(server_name, url_path, "POST", **kwargs)

    def poll_for_status(self, server_name: str) -> ServerStatus:
        """Whether a server, `head_server` for one, answers at all; blocks for 5 seconds at most."""
        is_head = server_name == HEAD_SERVER_KEY
        host, port = (
            (self.head_server_config.host, self.head_server_config.port) if is_head else self.address_of(server_name)
        )
        connection = http.client.HTTPConnection(host, port, timeout=POLL_TIMEOUT_S)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except TimeoutError:
            return "timeout"
        except OSError:
            return "connection_error"
        except http.client.HTTPException:
            return "unknown_error"
        finally:
            connection.close()
        return "success"

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._connections.close()

    async def _send(
        self,
        server_name: str,
        url_path: str,
        method: str,
        *,
        json: Any = None,
        data: bytes | str | None = None,
        cookies: Cookies | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
    ) -> Reply:
        host, port = self.address_of(server_name)
        given = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        head = [*self._run_headers, *given]
        body = data.encode() if isinstance(data, str) else data or b""
        if json is not None:
            body = encode_json(json)
            head.append((b"content-type", b"application/json"))
        if cookies:
            head.append((b"cookie", cookie_header(cookies)))
        if rollout_id := current_rollout_id():
            head.append((ROLLOUT_HEADER.encode(), rollout_id.encode()))
        if self._is_observed:
            url_path = self._for_its_rollout(server_name, url_path, json)
        path = f"{url_path}?{urlencode(params)}" if params else url_path
        with Wait(f"{url_path} of {server_name}") as wait:
            call = _Call(wait, server_name)
            while True:
                left_s = call.time_left_s()
                told = (
                    head if left_s is None else [*head, (TIME_LEFT_HEADER.encode(), b"%.3f" % told_to_callee(left_s))]
                )
                try:
                    reply = await self._connections.request(
                        method, host, port, path, body=body, headers=told, timeouts=_within(timeouts, left_s)
                    )
                except ReplyTimedOut as error:
                    call.time_left_s()
                    raise error.of_server(server_name) from error.__cause__
                except ServerCallError as error:
                    if error.was_sent or call.took_s > REFUSED_PATIENCE_S:
                        raise error.of_server(server_name) from error.__cause__
                    wait.trouble = str(error)
                    await call.pause()
                    continue
                if reply.status == 200 and url_path.endswith("/verify") and FAILURE_HEADER in reply.headers:
                    note_failure(orjson.loads(reply.body))
                if reply.status != 503 or NOT_BEGUN_HEADER not in reply.headers:
                    return reply
                if call.took_s > OVERLOADED_PATIENCE_S:
                    raise Overloaded(
                        f"{server_name} had no room for {url_path} for {call.took_s:.0f} s (tried {call.tries} times)",
                        server=server_name,
                    )
                wait.trouble = "it has no room"
                await call.pause(seconds_of_retry_after(reply.headers.get("retry-after")))

    def _for_its_rollout(self, server_name: str, url_path: str, body: Any) -> str:
        """The path that tells also a server without our middleware which rollout it works for."""
        if url_path.startswith(ROLLOUT_PREFIX):
            return url_path
        tier = _tier_of(self.global_config_dict, server_name)
        rollout_id = None
        if tier == MODEL_TIER and url_path in MODEL_CALLS:
            rollout_id = current_rollout_id()
        elif tier == RESOURCES_TIER:
            rollout_id = current_rollout_id()
            if rollout_id is None and url_path == "/verify":
                rollout_id = maybe_rollout_id_from_run_body(body)
        return rollout_path_prefix(rollout_id) + url_path


class _Call:
    """One call that may be tried several times, each time from its beginning."""

    def __init__(self, wait: Wait, server: str) -> None:
        self.wait = wait
        self.server = server
        self.tries = 1
        self._began_at = time.monotonic()

    @property
    def took_s(self) -> float:
        """Since the first try."""
        return time.monotonic() - self._began_at

    def time_left_s(self) -> float | None:
        """What is left of the rollout's time; `RolloutTimedOut` where it is over."""
        left_s = time_left_s()
        if left_s is not None and left_s <= CLOCK_SLACK_S:
            waited = f" after {self.took_s:.1f} s" if self.tries > 1 or self.took_s > 1 else ""
            raise RolloutTimedOut(f"the rollout's time was over at {self.wait}{waited}", server=self.server)
        return left_s

    async def pause(self, at_least_s: float | None = None) -> None:
        """Wait before the next try: longer each time, never in step with others, not beyond the rollout's time."""
        growing = min(FIRST_PAUSE_S * 2 ** (self.tries - 1), LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)
        pause_s = max(growing, at_least_s or 0.0)
        left_s = time_left_s()
        self.tries += 1
        await asyncio.sleep(pause_s if left_s is None else max(0.0, min(pause_s, left_s)))


def _within(timeouts: Timeouts | None, left_s: float | None) -> Timeouts | None:
    if left_s is None:
        return timeouts
    return (timeouts or Timeouts())._replace(total_s=min((timeouts or Timeouts()).total_s, left_s))


def wants_token(address: str) -> str:
    """What a user is told whom the head server at this address does not know."""
    return (
        f"the run at {address} answers only who has its token. Give it with +{RUN_TOKEN_KEY}=…, in env.yaml or in "
        f"{RUN_TOKEN_ENV_VAR}; it is the {RUN_TOKEN_KEY} of the run's own configuration. On the machine where the run "
        "was started, its user's commands find it by themselves."
    )


def setup_server_client(head_server_config: Any = None) -> ServerClient:
    """A client for the run whose head server this is (`host`, `port`); by default the configuration's."""
    return ServerClient.load_from_global_config(head_server_config)


def get_server_url(server_name: str) -> str:
    """The address of a server, by the configuration of this process."""
    host, port = _look_up(told_by(PUBLISHED_NAME), server_name)
    return f"http://{host}:{port}"


def encode_json(value: Any) -> bytes:
    """A request body: models without their unset fields, so that defaults stay the receiver's."""
    if isinstance(value, BaseModel):
        return value.model_dump_json(exclude_unset=True).encode()
    return dump_json(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"cannot be sent as JSON: {type(value).__name__}")


def cookie_header(cookies: Cookies) -> bytes:
    """The value of a `Cookie` header, from plain values or from a `SimpleCookie`."""
    return "; ".join(
        f"{name}={value.coded_value if isinstance(value, Morsel) else value}" for name, value in cookies.items()
    ).encode("latin-1")


def _look_up(config: Any, server_name: str) -> Address:
    instance = _behind(config, server_name)
    tier = _tier_of(config, instance)
    if tier is None:
        # A value that points at nothing need not concern a command that only wants names.
        known = sorted(str(key) for key in config if _tier_of(config, key) is not None)
        raise ServerCallError(f"no server is named '{server_name}'; there are: {', '.join(known)}", was_sent=False)
    settings = next(iter(config[instance][tier].values()))
    return Address(settings["host"], int(settings["port"]))


def _tier_of(config: Any, server_name: Any) -> str | None:
    """The tier of the instance that a name stands for; None where it stands for no server."""
    block = _block(config, _behind(config, server_name))
    return next((tier for tier in SERVER_TYPES if tier in block), None)


def _behind(config: Any, server_name: Any) -> str:
    """The agent instance for which an `environment_servers` block stands; any other name stands for itself."""
    name = str(server_name)
    # A chain of names is not longer than there are names, unless it is a ring.
    for _ in range(len(config)):
        named = _block(config, name).get(ENVIRONMENT_SERVERS)
        if not _is_mapping(named) or not named:
            break
        agent = _block(named, next(iter(named))).get("agent_server")
        if not _is_mapping(agent) or "name" not in agent:
            break
        name = str(agent["name"])
    return name


def _block(config: Any, key: Any) -> Any:
    """The mapping under a key; an empty one where it is none, or points at nothing."""
    if OmegaConf.is_config(config) and (OmegaConf.is_interpolation(config, key) or OmegaConf.is_missing(config, key)):
        return {}
    block = config.get(key)
    return block if _is_mapping(block) else {}


def _is_mapping(value: Any) -> bool:
    return isinstance(value, (Mapping, DictConfig))


async def raise_for_status(response: Any) -> None:
    """Raise what the reply's own `raise_for_status` raises, with the body as `response_content`."""
    if response.ok:
        return
    content = await response.content.read()
    try:
        response.raise_for_status()
    except Exception as error:
        error.response_content = content  # type: ignore[attr-defined]
        raise


async def get_response_json(response: Any) -> Any:
    """The reply's body, parsed."""
    return orjson.loads(await response.read())
