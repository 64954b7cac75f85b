"""Methods whose names are probably misspelled hooks, such as `seed_sesion`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType

from nemo_gym.config.suggestions import CERTAINLY_MEANT, closest
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.tools.handlers import place_of


def misspelled_hooks(server_class: type[SimpleServer]) -> Iterator[str]:
    """Yield a message for each public method that the class never calls and whose name is almost a hook's name."""
    ours = [cls for cls in server_class.__mro__ if cls.__module__.startswith("nemo_gym.")]
    theirs = [cls for cls in server_class.__mro__ if issubclass(cls, SimpleServer) and cls not in ours]
    hooks = {name for cls in ours for name, value in vars(cls).items() if inspect.isfunction(value) and name[0] != "_"}
    methods = {name: value for cls in theirs for name, value in vars(cls).items() if inspect.isfunction(value)}
    used = {name for method in methods.values() for name in inspect.unwrap(method).__code__.co_names}
    for name, method in methods.items():
        if name.startswith("_") or name in hooks or name in used or not _is_plain(method):
            continue
        if hook := closest(name, hooks - methods.keys(), CERTAINLY_MEANT):
            yield f"{place_of(method)}: {method.__qualname__} is never called. Did you mean '{hook}'?"


def _is_plain(method: FunctionType) -> bool:
    """Return whether no decorator, such as `@tool`, has marked a method."""
    return not vars(method)
