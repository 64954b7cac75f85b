"""Ask any address with aiohttp: for servers that bring the address themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym.config.published import maybe_get_global_config_dict
from nemo_gym.http.external import MAX_NUM_TRIES, RetryPolicy, external_session

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession


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
            await asyncio.sleep(RetryPolicy().pause_s(tries, None))
    return await session.opened().request(method, url, **kwargs)
