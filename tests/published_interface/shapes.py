"""A name that published folders import, and the shapes that it may have."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import pytest
from pydantic import TypeAdapter, ValidationError

from nemo_gym import (
    base_resources_server,
    base_responses_api_agent,
    base_responses_api_model,
    config_types,
    openai_utils,
)

Check = Callable[[Any], None]
NOTHING_IN_PARTICULAR = "shape"
"""Where the shape is all that there is to show: a constant, fields without a behaviour."""


class Row(NamedTuple):
    """A row of appendix A."""

    number: int
    module: str
    """Without its leading `nemo_gym.`; empty for the package itself."""
    name: str
    shape: tuple[Check, ...]
    shown_by: str
    """A test of this folder, or `path::test` of another one."""

    @property
    def home(self) -> types.ModuleType:
        return importlib.import_module(f"nemo_gym.{self.module}" if self.module else "nemo_gym")

    @property
    def thing(self) -> Any:
        return self.home if self.name == "<module>" else getattr(self.home, self.name)


def value(expected: Any) -> Check:
    def check(thing: Any) -> None:
        assert thing == expected

    return check


def is_the(module: Any, name: str) -> Check:
    """It is not like that one: it is that one."""

    def check(thing: Any) -> None:
        assert thing is getattr(module, name)

    return check


def kind_of(*bases: type) -> Check:
    def check(thing: Any) -> None:
        assert inspect.isclass(thing)
        assert issubclass(thing, bases)

    return check


def derived_from(*names: str) -> Check:
    def check(thing: Any) -> None:
        above = {base.__name__ for base in thing.__mro__[1:]}
        assert {base.partition(":")[2] or base for base in names} <= {*above, *_published_names_of(above)}

    return check


def _published_names_of(names: set[str]) -> set[str]:
    modules = (openai_utils, base_resources_server, config_types, base_responses_api_agent, base_responses_api_model)
    return {alias for module in modules for alias, each in vars(module).items() if _named(each) in names}


def _named(thing: Any) -> str | None:
    return thing.__name__ if inspect.isclass(thing) else None


def fields(text: str) -> Check:
    """`a!` has to be given, `b=1` has this default; there may be more, with defaults of their own."""
    expected = {}
    for word in text.split():
        name, _, default = word.partition("=")
        expected[name.removesuffix("!")] = ... if name.endswith("!") else ast.literal_eval(default)

    def check(thing: Any) -> None:
        told = {
            name: ... if field.is_required() else field.get_default(call_default_factory=True)
            for name, field in thing.model_fields.items()
        }
        assert {name: told.get(name, "no such field") for name in expected} == expected
        assert [name for name in told if told[name] is ... and name not in expected] == []

    return check


def extra(mode: str | None) -> Check:
    """What becomes of fields that nobody knows; None is pydantic's own `ignore`."""

    def check(thing: Any) -> None:
        assert thing.model_config.get("extra") == mode

    return check


def signature(text: str, *, awaited: bool = False) -> Check:
    """Parameters with their defaults; those that come after the ones in `text` may be left out by every caller."""

    def check(thing: Any) -> None:
        assert inspect.iscoroutinefunction(thing) == awaited
        given = inspect.signature(thing)
        bare = given.replace(
            parameters=[each.replace(annotation=inspect.Parameter.empty) for each in given.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        told, expected = str(bare), text
        if told == expected:
            return
        begins = expected[:-1] + ("" if expected == "()" else ", ")
        assert told.startswith(begins), f"{told} is not {expected}"
        named = 0 if expected == "()" else expected.count(",") + 1 - expected.count("*, ")
        beyond = list(bare.parameters.values())[named:]
        optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        assert all(each.default is not inspect.Parameter.empty or each.kind in optional for each in beyond)

    return check


def methods(**signatures: str) -> Check:
    """Each as its class has it, `async ` before those that are awaited."""

    def check(thing: Any) -> None:
        for name, text in signatures.items():
            awaited = text.startswith("async ")
            signature(text.removeprefix("async "), awaited=awaited)(getattr(thing, name))

    return check


def members(**values: str) -> Check:
    def check(thing: Any) -> None:
        assert issubclass(thing, str)
        assert issubclass(thing, Enum)
        assert {name: thing[name].value for name in values} == values

    return check


def reads(good: Any, bad: Any) -> Check:
    """A type, whatever it is made of: it takes the one as it is, and refuses the other."""

    def check(thing: Any) -> None:
        adapter = TypeAdapter(thing)
        read = adapter.validate_python(good)
        assert adapter.dump_python(read, mode="json", exclude_unset=True) == good
        with pytest.raises(ValidationError):
            adapter.validate_python(bad)

    return check


def is_callable(thing: Any) -> None:
    assert callable(thing)


STRICT = extra("forbid")
P = "tests/published_modules/"
RECORDS = "tests/capture/"
STYLE = "tests/published_style/test_agents_and_models.py::"
