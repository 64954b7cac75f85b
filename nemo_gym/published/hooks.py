"""Hooks for server folders that use newer names for something else, and for their tests.

The tests pass mocks or fake replies, or patch functions in modules that the folders import. The hooks are used as soon
as this module is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Mapping, MutableMapping
from http.cookies import Morsel
from inspect import isawaitable
from typing import Any, cast
from uuid import UUID, uuid4

from fastapi import FastAPI
from fastapi.routing import APIRoute
from omegaconf import DictConfig
from starlette.requests import Request

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient, raise_for_status
from nemo_gym.calls.hooks import Client, FailedReply, Hooks, ServerT, use
from nemo_gym.context.rollout_id import ROLLOUT_PARAMETER, ROLLOUT_PREFIX, TOKEN_CAPTURE_SEGMENT
from nemo_gym.http import raising
from nemo_gym.http.reply import Reply
from nemo_gym.published.aiohttp_errors import also_aiohttps
from nemo_gym.published.global_config import get_first_server_config_dict, module_config
from nemo_gym.published.name_clashes import FrameworkView, YieldingRoutes, setting_of
from nemo_gym.published.whole_config import run_of_config
from nemo_gym.schemas.responses import RESPONSES_PATH

CLIENT = "nemo_gym.server_utils"
AGENT = "nemo_gym.base_responses_api_agent"
CONVERTER = "nemo_gym.responses_converter"
"""The modules from which folders import the client, the agent and the converter, and in which their tests patch."""
NEVER = re.compile("(?!)")


class PublishedHooks(Hooks):
    def config(self) -> DictConfig:
        return module_config(CLIENT)

    def new_uuid(self) -> UUID:
        draw: Callable[[], UUID] = getattr(sys.modules.get(CONVERTER), "uuid4", uuid4)
        return draw()

    def address_book(self, client: Client) -> AddressBook:
        # A mock may lack the attribute, and so may a client that was created without `__init__`.
        book = getattr(client, "address_book", None)
        if isinstance(book, AddressBook):
            return book
        return AddressBook.of_run(run_of_config(getattr(client, "global_config_dict", None)))

    def base_url(self, client: Client, server: str) -> str:
        look_up = getattr(sys.modules.get(AGENT), "get_first_server_config_dict", get_first_server_config_dict)
        if look_up is get_first_server_config_dict and issubclass(type(client), ServerClient):
            return super().base_url(client, server)
        return client._build_server_base_url(look_up(client.global_config_dict, server))

    def scope(self, request: Request) -> MutableMapping[str, Any]:
        # A mock with the class as its spec passes for an instance.
        if issubclass(type(request), Request):
            return request.scope
        given = getattr(request, "path_params", None)
        path = getattr(getattr(request, "url", None), "path", None)
        return {
            "type": "http",
            "headers": [],
            "path": path if isinstance(path, str) else "",
            "path_params": given if isinstance(given, Mapping) else {},
        }

    def headers(self, reply: Reply) -> Mapping[str, str]:
        return reply.headers if isinstance(reply, Reply) else {}

    def cookies(self, reply: Reply) -> dict[str, str]:
        return reply.cookie_values if isinstance(reply, Reply) else _values_of(reply.cookies)

    async def failed_reply(self, reply: Reply) -> FailedReply:
        reading = reply.read()
        if not isawaitable(reading):
            # Only `raise_for_status` of such a reply reports the error.
            await raise_for_status(reply)
        return FailedReply(getattr(reply, "status", "an error"), await reading)

    def server(self, server: ServerT) -> ServerT:
        return cast(ServerT, FrameworkView(server))

    def setting(self, config: object, name: str) -> Any:
        return setting_of(config, name)

    def let_routes_replace(self, app: FastAPI, paths: Container[str]) -> None:
        app.router.routes = YieldingRoutes(app.routes, yielding=paths)

    def replaced_paths(self, app: FastAPI) -> frozenset[str]:
        routes = app.router.routes
        return routes.taken if isinstance(routes, YieldingRoutes) else frozenset()

    def list_with_prefix(self, app: FastAPI, responses: Callable[..., object]) -> None:
        for segment in ("", TOKEN_CAPTURE_SEGMENT):
            path = f"{ROLLOUT_PREFIX}{{{ROLLOUT_PARAMETER}}}{segment}{RESPONSES_PATH}"
            listed = APIRoute(path, responses, methods=["POST"], include_in_schema=False)
            # The prefix is removed before routing, so this route is only listed.
            listed.path_regex = NEVER
            app.router.routes.append(listed)


def _values_of(jar: Mapping[str, Morsel[str] | str]) -> dict[str, str]:
    """Return a jar's cookies by name, with values encoded for a header. Values that are strings stay unchanged."""
    return {name: each.coded_value if isinstance(each, Morsel) else each for name, each in jar.items()}


use(PublishedHooks())
raising.use(also_aiohttps)
