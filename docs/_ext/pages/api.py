"""The API reference: what the public modules export, from signatures and docstrings."""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from types import ModuleType

from pydantic import BaseModel
from sphinx.util.inspect import signature, stringify_signature

from nemo_gym.contract.schema import field_docstrings
from pages.fields import keys_of_model
from pages.markdown import directive, prose

MODULES = ("nemo_gym", "nemo_gym.grading", "nemo_gym.testing", "nemo_gym.training", "nemo_gym.dialects")


def api(module_name: str) -> str:
    """Return the body of a module's page."""
    module = importlib.import_module(module_name)
    parts = [f"```{{py:module}} {module_name}\n```\n"]
    if hasattr(module, "__path__") and not exported(module):
        for found in pkgutil.iter_modules(module.__path__, f"{module_name}."):
            inner = importlib.import_module(found.name)
            if names := exported(inner):
                parts += [f"## {found.name}\n", f"```{{py:module}} {found.name}\n```\n", f"{_prose(inner)}\n"]
                parts += [_entry(name, getattr(inner, name)) for name in names]
        return "\n".join(parts)
    return "\n".join([*parts, *_grouped(module)])


def exported(module: ModuleType) -> list[str]:
    """Return the public names of a module: those in `__all__`, imported `as` themselves, or defined in it."""
    if hasattr(module, "__all__"):
        return sorted(name for name in module.__all__ if not name.startswith("_"))
    home = module.__name__
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and (value.__module__ == home or (home == "nemo_gym.training" and value.__module__.startswith(home)))
    )


def _grouped(module: ModuleType) -> Iterator[str]:
    values = {name: getattr(module, name) for name in exported(module)}
    for heading, belongs in (
        ("Classes", lambda each: inspect.isclass(each) and not issubclass(each, Exception)),
        ("Functions", inspect.isroutine),
        ("Exceptions", lambda each: inspect.isclass(each) and issubclass(each, Exception)),
        ("Values", lambda each: not inspect.isclass(each) and not inspect.isroutine(each)),
    ):
        if group := {name: value for name, value in values.items() if belongs(value)}:
            yield f"## {heading}\n"
            yield from (_entry(name, value) for name, value in group.items())


def _entry(name: str, value: object) -> str:
    if inspect.isclass(value):
        return _class_entry(name, value)
    if inspect.isroutine(value):
        return directive("py:function", name + _arguments(value), _prose(value))
    return directive("py:data", name, "", [("type", _kind(value))])


def _kind(value: object) -> str:
    return re.sub(r"\btyping\.", "", str(value)) if hasattr(value, "__origin__") else type(value).__name__


def _class_entry(name: str, cls: type) -> str:
    is_error = issubclass(cls, BaseException)
    members = "\n".join(_members(cls))
    body = f"{_prose(cls)}\n\n{members}"
    has_arguments = not is_error and not issubclass(cls, BaseModel | enum.Enum)
    bases = [base.__name__ for base in cls.__bases__ if base is not object and "pydantic" not in base.__module__]
    inherited = f"Base: {', '.join(f'`{base}`' for base in bases)}.\n\n" if bases else ""
    kind = "py:exception" if is_error else "py:class"
    return directive(kind, name + (_arguments(cls) if has_arguments else ""), inherited + body, colons=4)


def _members(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield from (_member("attribute", member.name, "", [("value", repr(member.value))]) for member in cls)
        return
    own = inspect.get_annotations(cls)
    if issubclass(cls, BaseModel):
        for key in keys_of_model(cls):
            if key.name in own:
                options = [("type", key.type), *([("value", key.default)] if key.default else [])]
                yield _member("attribute", key.name, key.meaning, options)
    else:
        meanings = field_docstrings(cls)
        yield from (_member("attribute", name, meanings[name]) for name in own if name in meanings)
    for name, member in vars(cls).items():
        if name.startswith("_") or not _prose(member) or name in own:
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function):
            modifier = type(member).__name__ if isinstance(member, classmethod | staticmethod) else ""
            yield directive(
                "py:method", name + _arguments(function), _prose(function), [(modifier, "")] if modifier else []
            )
        elif isinstance(member, property):
            yield _member("property", name, _prose(member))


def _member(kind: str, name: str, text: str, options: Iterable[tuple[str, str]] = ()) -> str:
    # Without an entry in the index: Sphinx would take types such as `object` for references to attributes.
    return directive(f"py:{kind}", name, text, [*options, ("no-index", "")])


def _arguments(function: object) -> str:
    try:
        found = signature(function, bound_method=_takes_self(function))  # type: ignore[arg-type]
        text = stringify_signature(
            found, show_return_annotation=not inspect.isclass(function), unqualified_typehints=True
        )
    except (TypeError, ValueError):
        return ""
    return re.sub(r"<[^>]*>", "…", text)


def _takes_self(function: object) -> bool:
    return inspect.isfunction(function) and next(iter(inspect.signature(function).parameters), "") in ("self", "cls")


def _prose(value: object) -> str:
    """Return the docstring of a value."""
    text = inspect.getdoc(value) or "" if not isinstance(value, property) else inspect.getdoc(value.fget) or ""
    return prose(text)
