"""Name clashes with older server folders: the folder's own meaning of a name wins.

A folder may have a dict called `sessions`, a list of `tools`, a helper called `close_session` or a route `/tools`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, get_origin

from pydantic import BaseModel
from starlette.routing import BaseRoute

from nemo_gym.servers.tools.handlers import Handler
from nemo_gym.servers.tools.tool import Tool, tools_of

PACKAGE = "nemo_gym."


def listed_tools(server: Any) -> list[Tool]:
    """Return `server.tools()`, or the `@tool` methods if the folder uses that name for something else."""
    method = server.tools
    if not inspect.ismethod(method) or inspect.iscoroutinefunction(method) or inspect.signature(method).parameters:
        return tools_of(server)
    listed: list[Tool] = method()
    return listed if isinstance(listed, list) and all(isinstance(each, Tool) for each in listed) else tools_of(server)


def hook_of(server: Any, name: str) -> Callable[[], Any]:
    """Return a server's hook, or the base class's hook if the folder uses the name for something else.

    A hook is a method without required parameters.
    """
    method = getattr(server, name)
    if inspect.ismethod(method) and not any(map(_is_required, inspect.signature(method).parameters.values())):
        return method
    ours = next(cls for cls in type(server).__mro__ if cls.__module__.startswith(PACKAGE) and name in vars(cls))
    return MethodType(vars(ours)[name], server)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_open


def can_end_a_session(method: Any) -> bool:
    """Return whether a `close_session` is our hook, which takes only a body, the request or a rollout's state."""
    return inspect.ismethod(method) and all(_is_a_body(each) for each in Handler.of(method).open_parameters)


def _is_a_body(parameter: inspect.Parameter) -> bool:
    kind = parameter.annotation
    return kind is Any or get_origin(kind) is dict or (inspect.isclass(kind) and issubclass(kind, (BaseModel, dict)))


class YieldingRoutes(list[BaseRoute]):
    """An app's routes. A later route with the same path and method replaces one for which `may_go` is true."""

    def __init__(self, routes: Iterable[BaseRoute], *, may_go: Callable[[BaseRoute], bool]) -> None:
        super().__init__(routes)
        self._may_go: list[Any] = [route for route in self if may_go(route)]

    @property
    def taken(self) -> set[str]:
        """Our paths for which there is a later route, either instead of ours or in addition to it."""
        paths = {ours.path for ours in self._may_go}
        return paths & {getattr(route, "path", "") for route in self if route not in self._may_go}

    def append(self, route: BaseRoute, /) -> None:
        """Add a route, replacing ours for the same path and method."""
        for ours in [each for each in self._may_go if each in self and _is_for_the_same(route, each)]:
            self.remove(ours)
        super().append(route)


def _is_for_the_same(route: BaseRoute, ours: Any) -> bool:
    methods = getattr(route, "methods", None) or ()
    return getattr(route, "path", None) == ours.path and not ours.methods.isdisjoint(methods)
