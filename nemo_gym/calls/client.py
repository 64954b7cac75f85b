"""Call another server by the name that the configuration gives it."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
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
"""Where published folders import all of this from, and where their tests replace what the configuration says."""

HEAD_SERVER_KEY = "head_server"
POLL_TIMEOUT_S = 5.0

UNAUTHORISED = 401
HEAD_TIMEOUT_S = 10.0


class ServerClient(BaseModel):
    """Calls servers by instance name.

    Cookies go out only where the caller passes them, and come back in `reply.cookies`: two rollouts that
    share a client never see each other's session.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig

    _caller: Caller = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        # Tests construct one without any configuration.
        config = self.__dict__.get("global_config_dict")
        # Where model calls are recorded, paths say for which rollout a call is.
        tier_of = partial(_tier_of, config) if config is not None and is_enabled(config) else None
        self._caller = Caller(self._open_connections(), self.address_of, tier_of)

    def _open_connections(self) -> InternalClient:
        return InternalClient()

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Where the head server listens, by the configuration of this process."""
        return BaseServerConfig.model_validate(dict(module_config(PUBLISHED_NAME)[HEAD_SERVER_KEY]))

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
        client = cls._to(head_server_config, config)
        shortcuts = {str(name): str(path) for name, path in _block(config, SHORTCUTS_KEY).items()}
        return client.of_this_run(run_token, str(config.get(RUN_ID_KEY) or ""), shortcuts)

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """A client for servers that this process has started."""
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
        """This client, which from now on tells with every call which run it is meant for, and the run's token.

        `shortcuts` are unix sockets at which servers, by their names, listen too.
        """
        self._caller.shortcuts = dict(shortcuts or {})
        told = {RUN_ID_HEADER: run_id, RUN_TOKEN_HEADER: run_token}
        self._caller.run_headers = [(name.encode(), value.encode()) for name, value in told.items() if value]
        return self

    def address_of(self, server_name: str) -> Address:
        """Where an instance listens; `ServerCallError` names the instances there are."""
        return _look_up(self.global_config_dict, server_name)

    def agent_names(self) -> list[str]:
        """The agents that can be called, also by the other names that `environment_servers` blocks give them."""
        return [str(name) for name in self.global_config_dict if _tier_of(self.global_config_dict, name) == AGENT_TIER]

    def instance_of(self, agent: str) -> str:
        """The instance that an agent's name means."""
        return _behind(self.global_config_dict, agent)

    def _build_server_base_url(self, server_config_dict: Mapping[str, Any]) -> str:
        return f"http://{server_config_dict['host']}:{server_config_dict['port']}"

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> Reply:
        """Send one request and wait for the whole answer, whatever its status.

        Keywords: `json` (a pydantic model, sent without its unset fields, or anything that orjson writes), `data`
        (bytes or text), `cookies`, `headers`, `params`, `timeouts`, or aiohttp's `timeout` in their place.
        Raises `ServerCallError` where no answer came.
        """
        return await self._calls(server_name, url_path, method, **kwargs)

    async def get(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        """`request` with GET."""
        return await self._calls(server_name, url_path, "GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        """`request` with POST."""
        return await self._calls(server_name, url_path, "POST", **kwargs)

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
        await self._caller.connections.close()

    @property
    def _calls(self) -> Callable[..., Awaitable[Reply]]:
        # The usual way to a private attribute costs as much as half of the call.
        caller: Caller = self.__pydantic_private__["_caller"]  # type: ignore[index]
        return caller.call


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
    host, port = _look_up(module_config(PUBLISHED_NAME), server_name)
    return f"http://{host}:{port}"


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
