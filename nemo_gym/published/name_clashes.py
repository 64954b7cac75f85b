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


class FrameworkView:
    """A server as the framework sees it: methods of the base class replace anything else with the same name."""

    def __init__(self, server: object) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # All hooks are methods without required parameters. Only `close_session` may have some.
        method = getattr(self._server, name)
        fits = _can_end_a_session if name == "close_session" else _needs_no_arguments
        if inspect.ismethod(method) and fits(method):
            return method
        ours = next(cls for cls in type(self._server).__mro__ if _is_ours(cls) and name in vars(cls))
        return MethodType(vars(ours)[name], self._server)

    def tools(self) -> list[Tool]:
        """Return `server.tools()`, or the `@tool` methods if the folder uses the name `tools` for something else."""
        method = getattr(self._server, "tools", None)
        if (
            inspect.ismethod(method)
            and not inspect.iscoroutinefunction(method)
            and not inspect.signature(method).parameters
        ):
            listed = method()
            if isinstance(listed, list) and all(isinstance(each, Tool) for each in listed):
                return listed
        return tools_of(self._server)


def setting_of(config: object, name: str) -> Any:
    """Return a setting that nemo_gym added. Return None if the folder's config class declares this field itself."""
    for cls in type(config).__mro__:
        if name in inspect.get_annotations(cls) and not _is_ours(cls):
            return None
    return getattr(config, name, None)


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("nemo_gym.")


def _needs_no_arguments(method: MethodType) -> bool:
    return not any(
        each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in inspect.signature(method).parameters.values()
    )


def _can_end_a_session(method: MethodType) -> bool:
    """Return whether `method` is the hook `close_session`, which takes only bodies, requests and states."""
    return all(_is_a_body(each.annotation) for each in Handler.of(method).open_parameters)


def _is_a_body(kind: object) -> bool:
    return kind is Any or get_origin(kind) is dict or (inspect.isclass(kind) and issubclass(kind, (BaseModel, dict)))


class YieldingRoutes(list[BaseRoute]):
    """An app's routes. A later route at one of the `yielding` paths replaces nemo_gym's route with the same method."""

    def __init__(self, routes: Iterable[BaseRoute], *, yielding: Container[str]) -> None:
        super().__init__(routes)
        self._ours = [route for route in self if isinstance(route, Route) and route.path in yielding]

    @property
    def taken(self) -> frozenset[str]:
        """The yielding paths at which a route was added later, with any method."""
        paths = {ours.path for ours in self._ours}
        return frozenset(paths & {getattr(route, "path", "") for route in self if route not in self._ours})

    def append(self, route: BaseRoute, /) -> None:
        """Add a route. If nemo_gym has a yielding route for the same path and method, remove it."""
        for ours in [each for each in self._ours if each in self and _is_for_the_same(route, each)]:
            self.remove(ours)
        super().append(route)


def _is_for_the_same(route: BaseRoute, ours: Route) -> bool:
    methods = getattr(route, "methods", None) or ()
    return getattr(route, "path", None) == ours.path and not (ours.methods or set()).isdisjoint(methods)
