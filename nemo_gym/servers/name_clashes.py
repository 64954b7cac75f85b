"""Name clashes with older server folders: the folder's own meaning of a name wins.

For example, a server might have a dict called `sessions`, a helper called `close_session` or a route `/tools`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable
from types import MethodType
from typing import Any, get_origin

from pydantic import BaseModel
from starlette.routing import BaseRoute, Route

from nemo_gym.servers.tools.handlers import Handler
from nemo_gym.servers.tools.tool import Tool, tools_of


def listed_tools(server: object) -> list[Tool]:
    """Return `server.tools()`, or the `@tool` methods if the folder uses the name `tools` for something else."""
    method = getattr(server, "tools", None)
    if inspect.ismethod(method) and not (inspect.iscoroutinefunction(method) or inspect.signature(method).parameters):
        listed = method()
        if isinstance(listed, list) and all(isinstance(each, Tool) for each in listed):
            return listed
    return tools_of(server)


def hook_of(server: object, name: str) -> Callable[[], Any]:
    """Return a server's hook, or the base class's hook if the folder uses the name for something else.

    A hook is a method without required parameters.
    """
    method = getattr(server, name)
    if inspect.ismethod(method) and not any(map(_is_required, inspect.signature(method).parameters.values())):
        return method
    ours = next(cls for cls in type(server).__mro__ if cls.__module__.startswith("nemo_gym.") and name in vars(cls))
    return MethodType(vars(ours)[name], server)


def setting_of(config: object, name: str) -> Any:
    """Return a setting that nemo_gym added. Return None if the folder's config class declares this field itself."""
    for cls in type(config).__mro__:
        if name in inspect.get_annotations(cls) and not cls.__module__.startswith("nemo_gym."):
            return None
    return getattr(config, name, None)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_open


def can_end_a_session(method: object) -> bool:
    """Return whether `method` is the hook `close_session`, which takes only bodies, requests and states."""
    return inspect.ismethod(method) and all(_is_a_body(each.annotation) for each in Handler.of(method).open_parameters)


def _is_a_body(kind: object) -> bool:
    return kind is Any or get_origin(kind) is dict or (inspect.isclass(kind) and issubclass(kind, (BaseModel, dict)))


class YieldingRoutes(list[BaseRoute]):
    """An app's routes. A later route at one of the `yielding` paths replaces nemo_gym's route with the same method."""

    def __init__(self, routes: Iterable[BaseRoute], *, yielding: Container[str]) -> None:
        super().__init__(routes)
        self._ours = [route for route in self if isinstance(route, Route) and route.path in yielding]

    @property
    def taken(self) -> set[str]:
        """The yielding paths at which a route was added later, with any method."""
        paths = {ours.path for ours in self._ours}
        return paths & {getattr(route, "path", "") for route in self if route not in self._ours}

    def append(self, route: BaseRoute, /) -> None:
        """Add a route. If nemo_gym has a yielding route for the same path and method, remove it."""
        for ours in [each for each in self._ours if each in self and _is_for_the_same(route, each)]:
            self.remove(ours)
        super().append(route)


def _is_for_the_same(route: BaseRoute, ours: Route) -> bool:
    methods = getattr(route, "methods", None) or ()
    return getattr(route, "path", None) == ours.path and not (ours.methods or set()).isdisjoint(methods)
