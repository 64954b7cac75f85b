"""Ask any address with aiohttp: for servers that bring the address themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel

from nemo_gym.config.published import maybe_get_global_config_dict
from nemo_gym.http.external import MAX_NUM_TRIES, RetryPolicy, external_session, open_sessions

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession


class GlobalAIOHTTPAsyncClientConfig(BaseModel):
    """How many connections the session may hold, in all and to one address; 0 is without limit."""

    global_aiohttp_connector_limit: int = 0
    global_aiohttp_connector_limit_per_host: int = 0
    global_aiohttp_client_request_debug: bool = False


def set_global_aiohttp_client(cfg: GlobalAIOHTTPAsyncClientConfig) -> ClientSession:
    """Open the running event loop's session with these limits; one that is open already keeps its own."""
    session = external_session()
    session.most_connections = cfg.global_aiohttp_connector_limit
    session.most_connections_per_host = cfg.global_aiohttp_connector_limit_per_host
    return session.opened()


def is_global_aiohttp_client_setup() -> bool:
    """Whether any event loop of this process has a session that is open."""
    return bool(open_sessions())


def global_aiohttp_client_exit() -> None:
    """Close the sessions of event loops that stand still; servers close theirs themselves."""
    for loop, session in open_sessions().items():
        if not loop.is_running() and not loop.is_closed():
            loop.run_until_complete(session.aclose())


def get_global_aiohttp_client() -> ClientSession:
    """The session that all calls of the running event loop share; it keeps no cookies and ends with the server."""
    return external_session().opened()


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Whether the configuration of this process says `global_aiohttp_client_request_debug: true`."""
    config = maybe_get_global_config_dict()
    return bool(config and config.get("global_aiohttp_client_request_debug"))


async def request(method: str, url: str, _internal: bool = False, **kwargs: Any) -> ClientResponse:
    """Ask an address, and give back aiohttp's own response: whatever its status, its body not read yet.

    Keywords are those of `aiohttp.ClientSession.request`; what `json` holds is written by orjson. A refused connection
    is tried `MAX_NUM_TRIES` times, anything that may have arrived is not sent again. With `_internal`, which marks one
    of our own servers, no proxy is used.
    """
    import aiohttp

    session = external_session()
    if kwargs.get("json"):
        kwargs["data"] = orjson.dumps(kwargs.pop("json"), option=orjson.OPT_NON_STR_KEYS)
        kwargs["headers"] = {"Content-Type": "application/json", **(kwargs.get("headers") or {})}
    if not _internal:
        kwargs.setdefault("proxy", session.proxy_for(url))
    for tries in range(1, MAX_NUM_TRIES):
        try:
            return await session.opened().request(method, url, **kwargs)
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(RetryPolicy().backoff.pause_s(tries))
    return await session.opened().request(method, url, **kwargs)
