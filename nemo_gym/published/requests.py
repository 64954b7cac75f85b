"""Requests to any URL over a shared aiohttp session, for server code that has a URL instead of a server's name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel

from nemo_gym.config.view import current_view
from nemo_gym.context.deadline import time_left_s
from nemo_gym.http.external import (
    TIMEOUTS,
    ConnectionLimits,
    external_session,
    open_sessions,
)
from nemo_gym.http.open_files import is_out_of_files
from nemo_gym.http.pool import wait_for_room
from nemo_gym.http.retries import MAX_NUM_TRIES, RetryPolicy

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession


class GlobalAIOHTTPAsyncClientConfig(BaseModel):
    """Limits on open connections, in total and per host; 0 means no limit."""

    global_aiohttp_connector_limit: int = 0
    global_aiohttp_connector_limit_per_host: int = 0
    global_aiohttp_client_request_debug: bool = False


def set_global_aiohttp_client(cfg: GlobalAIOHTTPAsyncClientConfig) -> ClientSession:
    """Open the running event loop's session with these limits. A session that is already open keeps its limits."""
    session = external_session()
    session.limits = ConnectionLimits(cfg.global_aiohttp_connector_limit, cfg.global_aiohttp_connector_limit_per_host)
    return session.opened()


def is_global_aiohttp_client_setup() -> bool:
    """Return whether any event loop of this process has an open session."""
    return bool(open_sessions())


def global_aiohttp_client_exit() -> None:
    """Close the sessions of event loops that are not running. Servers close their own sessions."""
    for loop, session in open_sessions().items():
        if not loop.is_running() and not loop.is_closed():
            loop.run_until_complete(session.aclose())


def get_global_aiohttp_client() -> ClientSession:
    """Return the running event loop's shared session. It keeps no cookies and is closed with the server."""
    return external_session().opened()


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Return whether `global_aiohttp_client_request_debug` is true. Only published server folders call this."""
    config = current_view()
    return bool(config and config.get("global_aiohttp_client_request_debug"))


async def request(method: str, url: str, _internal: bool = False, **kwargs: Any) -> ClientResponse:
    """Send a request and return aiohttp's response, with any status and its body unread.

    The keywords are those of `aiohttp.ClientSession.request`; orjson serializes `json`. If the connection fails, try
    again, up to `MAX_NUM_TRIES` times in all. A request that may have arrived is not sent again. `_internal` is for
    calls to nemo_gym's own servers. These calls do not use a proxy.
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
        except aiohttp.ClientConnectorError as error:
            if is_out_of_files(error.os_error):
                left_s = time_left_s()
                async with asyncio.timeout(TIMEOUTS.total_s if left_s is None else left_s):
                    await wait_for_room()
            else:
                await asyncio.sleep(RetryPolicy().backoff.pause_s(tries))
    return await session.opened().request(method, url, **kwargs)
