"""The client that calls other servers by their configured names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, Self

import orjson
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym.calls.caller import Address, Caller
from nemo_gym.calls.running import run_token_for
from nemo_gym.config.access import RUN_TOKEN_ENV_VAR, RUN_TOKEN_KEY, configured_token
from nemo_gym.config.models import RUN_ID_KEY, SHORTCUTS_KEY, RunConfig
from nemo_gym.config.observability import CAPTURE_KEYS, is_enabled
from nemo_gym.config.published import maybe_get_global_config_dict, module_config
from nemo_gym.config.settings import AGENT_TIER, ENVIRONMENT_SERVERS, SERVER_TYPES, BaseServerConfig
from nemo_gym.errors import HeadServerNotFoundError, ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Reply
from nemo_gym.schemas.rollout import (
    RUN_ID_HEADER,
    RUN_TOKEN_HEADER,
)

ServerStatus = Literal["success", "connection_error", "timeout", "unknown_error"]

PUBLISHED_NAME = "nemo_gym.server_utils"
"""The module from which published folders import this client. Their tests patch the configuration there."""

HEAD_SERVER_KEY = "head_server"
POLL_TIMEOUT_S = 5.0

UNAUTHORISED = 401
OK = 200
HEAD_TIMEOUT_S = 10.0
# Our own servers use neither proxies nor TLS, and loading certificates would take longer than the request.
PLAIN_HTTP: dict[str, Any] = {"trust_env": False, "verify": False}


class ServerClient(BaseModel):
    """Client that calls servers by instance name.

    It sends only the cookies that the caller passes, and returns new ones in `reply.cookies`. So rollouts that share
    a client never share a session.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig

    _caller: Caller = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        # Tests construct a client without a configuration.
        config = self.__dict__.get("global_config_dict")
        # When model calls are recorded, paths include the rollout id.
        tier_of = partial(_tier_of, config) if config is not None and is_enabled(config) else None
        self._caller = Caller(self._open_connections(), self.address_of, tier_of)

    def _open_connections(self) -> InternalClient:
        return InternalClient()

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Return the head server's address from the configuration of this process."""
        return BaseServerConfig.model_validate(dict(module_config(PUBLISHED_NAME)[HEAD_SERVER_KEY]))

    @classmethod
    def load_from_global_config(cls, head_server_config: Any = None, run_token: str | None = None) -> Self:
        """Return a client for the servers of a run, with the configuration from its head server.

        The default head server is that of this process's configuration. The default token is the configured one, else
        the recorded one of that run. Raises `HeadServerNotFoundError` (also a `ValueError`) with the address if no
        head server answers.
        """
        # Imported here because it takes 0.1 s.
        import httpx

        head_server_config = head_server_config or cls.load_head_server_config()
        host, port = head_server_config.host, head_server_config.port
        run_token = run_token or configured_token(maybe_get_global_config_dict() or {}) or run_token_for(host, port)
        url = f"http://{host}:{port}/global_config_dict_yaml"
        headers = {RUN_TOKEN_HEADER: run_token} if run_token else {}
        try:
            reply = httpx.get(url, headers=headers, timeout=HEAD_TIMEOUT_S, **PLAIN_HTTP)
            if reply.status_code == UNAUTHORISED:
                raise HeadServerNotFoundError(wants_token(f"http://{host}:{port}"))
            if reply.status_code != OK:
                raise ValueError(f"HTTP status {reply.status_code}")
            config = OmegaConf.create(orjson.loads(reply.content))
            if not isinstance(config, DictConfig):
                raise ValueError("the reply is not a configuration")
        except HeadServerNotFoundError:
            raise
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise HeadServerNotFoundError(
                f"no head server answers at {url} ({str(error).strip()}). Start the servers with ng_run, or name the "
                "run with +head_server.host=… +head_server.port=…"
            ) from error
        client = cls._to(head_server_config, config)
        shortcuts = {str(name): str(path) for name, path in _block(config, SHORTCUTS_KEY).items()}
        return client.of_this_run(run_token, str(config.get(RUN_ID_KEY) or ""), shortcuts)

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Return a client for the servers of a run that this process started."""
        blocks = {
            name: {server.type: {server.implementation: {"host": server.host, "port": server.port}}}
            for name, server in run.by_any_name()
        }
        captures = {key: run.plain[key] for key in CAPTURE_KEYS if key in run.plain}
        client = cls._to(run.head, OmegaConf.create({**captures, **blocks}))
        return client.of_this_run(run.run_token, run.run_id, run.shortcuts)

    @classmethod
    def _to(cls, head: Any, config: DictConfig) -> Self:
        return cls(head_server_config=BaseServerConfig(host=head.host, port=head.port), global_config_dict=config)

    def of_this_run(self, run_token: str | None, run_id: str, shortcuts: Mapping[str, str] | None = None) -> Self:
        """Send the run's id and token with every call, and return this client.

        `shortcuts` are unix sockets on which servers listen too, by server name.
        """
        self._caller.shortcuts = dict(shortcuts or {})
        headers = {RUN_ID_HEADER: run_id, RUN_TOKEN_HEADER: run_token}
        self._caller.run_headers = [(name.encode(), value.encode()) for name, value in headers.items() if value]
        return self

    def address_of(self, server_name: str) -> Address:
        """Return the address of an instance. Raise `ServerCallError` with the known names if there is none."""
        return _look_up(self.global_config_dict, server_name)

    def agent_names(self) -> list[str]:
        """Return the names of the agents, including the names of their `environment_servers` blocks."""
        return [str(name) for name in self.global_config_dict if _tier_of(self.global_config_dict, name) == AGENT_TIER]

    def instance_of(self, agent: str) -> str:
        """Return the instance that an agent's name refers to."""
        return _resolve(self.global_config_dict, agent)

    def _build_server_base_url(self, server_config_dict: Mapping[str, Any]) -> str:
        return f"http://{server_config_dict['host']}:{server_config_dict['port']}"

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> Reply:
        """Send one request and return the complete reply, with any status.

        Keywords: `json` (a pydantic model, sent without its unset fields, or anything that orjson writes), `data`
        (bytes or text), `cookies`, `headers`, `params`, `timeouts`, or aiohttp's `timeout` instead of `timeouts`.
        Raises `ServerCallError` if there is no reply.
        """
        return await self._calls(server_name, url_path, method, **kwargs)

    async def get(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        """Call `request` with GET."""
        return await self._calls(server_name, url_path, "GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        """Call `request` with POST."""
        return await self._calls(server_name, url_path, "POST", **kwargs)

    def poll_for_status(self, server_name: str) -> ServerStatus:
        """Return whether a server (such as `head_server`) answers, with any status. The timeout is 5 seconds."""
        import httpx

        is_head = server_name == HEAD_SERVER_KEY
        host, port = (
            (self.head_server_config.host, self.head_server_config.port) if is_head else self.address_of(server_name)
        )
        url = httpx.URL(scheme="http", host=host, port=port, path="/")
        try:
            with httpx.stream("GET", url, timeout=POLL_TIMEOUT_S, **PLAIN_HTTP):
                return "success"
        except httpx.TimeoutException:
            return "timeout"
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            return "connection_error"
        except httpx.HTTPError:
            return "unknown_error"

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._caller.connections.close()

    @property
    def _calls(self) -> Callable[..., Awaitable[Reply]]:
        # Normal access to a private attribute would take half as long as the call itself.
        caller: Caller = self.__pydantic_private__["_caller"]  # type: ignore[index]
        return caller.call


def wants_token(address: str) -> str:
    """Return the message for a head server that rejects a call without its run token."""
    return (
        f"the run at {address} requires its run token. Pass it with +{RUN_TOKEN_KEY}=…, in env.yaml or in "
        f"{RUN_TOKEN_ENV_VAR}; it is the {RUN_TOKEN_KEY} of the run's configuration. Commands of the same user on the "
        "run's machine find it automatically."
    )


def setup_server_client(head_server_config: Any = None) -> ServerClient:
    """Return a client for the run with this head server (`host`, `port`), by default the configured one."""
    return ServerClient.load_from_global_config(head_server_config)


def get_server_url(server_name: str) -> str:
    """Return a server's URL from the configuration of this process."""
    host, port = _look_up(module_config(PUBLISHED_NAME), server_name)
    return f"http://{host}:{port}"


def _look_up(config: Any, server_name: str) -> Address:
    instance = _resolve(config, server_name)
    tier = _tier_of(config, instance)
    if tier is None:
        # Blocks with unresolved values are skipped, because only names are needed here.
        known = sorted(str(key) for key in config if _tier_of(config, key) is not None)
        raise ServerCallError(f"no server is named '{server_name}'; there are: {', '.join(known)}", was_sent=False)
    settings = next(iter(config[instance][tier].values()))
    return Address(settings["host"], int(settings["port"]))


def _tier_of(config: Any, server_name: Any) -> str | None:
    """Return the tier of the instance that a name refers to, or None if it does not refer to a server."""
    block = _block(config, _resolve(config, server_name))
    return next((tier for tier in SERVER_TYPES if tier in block), None)


def _resolve(config: Any, server_name: Any) -> str:
    """Resolve the name of an `environment_servers` block to its agent instance; return other names unchanged."""
    name = str(server_name)
    # The bound ends a cycle of names: a chain has no more links than there are names.
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
    """Return the mapping under a key, or an empty one if the value is unresolved or not a mapping."""
    if OmegaConf.is_config(config) and (OmegaConf.is_interpolation(config, key) or OmegaConf.is_missing(config, key)):
        return {}
    block = config.get(key)
    return block if _is_mapping(block) else {}


def _is_mapping(value: Any) -> bool:
    return isinstance(value, (Mapping, DictConfig))


async def raise_for_status(response: Any) -> None:
    """Raise the reply's own error for a status of 400 or more, with the body as `response_content`."""
    if response.ok:
        return
    content = await response.content.read()
    try:
        response.raise_for_status()
    except Exception as error:
        error.response_content = content  # type: ignore[attr-defined]
        raise


async def get_response_json(response: Any) -> Any:
    """Parse the reply's body as JSON."""
    return orjson.loads(await response.read())
