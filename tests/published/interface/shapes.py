"""Rows of names that published folders import, and checks of their shape."""

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
"""The `shown_by` of a name whose shape is everything to check, such as a constant."""


class Row(NamedTuple):
    """A row of appendix A."""

    number: int
    module: str
    """Module path without the leading `nemo_gym.`; empty for the package itself."""
    name: str
    shape: tuple[Check, ...]
    shown_by: str
    """A test in this folder, or `path::test` elsewhere."""

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


def frozen(names: set[str]) -> Check:
    """Check that it is a frozenset of these names."""

    def check(thing: Any) -> None:
        assert isinstance(thing, frozenset)
        assert thing == names

    return check


def is_the(module: Any, name: str) -> Check:
    """Check identity, not just equality."""

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
    """Check fields: `a!` is required, `b=1` has this default. More fields are allowed if they have a default."""
    expected = {}
    for word in text.split():
        name, _, default = word.partition("=")
        expected[name.removesuffix("!")] = ... if name.endswith("!") else ast.literal_eval(default)

    def check(thing: Any) -> None:
        found = {
            name: ... if field.is_required() else field.get_default(call_default_factory=True)
            for name, field in thing.model_fields.items()
        }
        assert {name: found.get(name, "no such field") for name in expected} == expected
        assert [name for name in found if found[name] is ... and name not in expected] == []

    return check


def extra(mode: str | None) -> Check:
    """Check the handling of unknown fields; None is pydantic's default, `ignore`."""

    def check(thing: Any) -> None:
        assert thing.model_config.get("extra") == mode

    return check


def signature(text: str, *, awaited: bool = False) -> Check:
    """Check parameters and their defaults; any parameters after the ones in `text` must be optional."""

    def check(thing: Any) -> None:
        assert inspect.iscoroutinefunction(thing) == awaited
        given = inspect.signature(thing)
        bare = given.replace(
            parameters=[each.replace(annotation=inspect.Parameter.empty) for each in given.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        found, expected = str(bare), text
        if found == expected:
            return
        begins = expected[:-1] + ("" if expected == "()" else ", ")
        assert found.startswith(begins), f"{found} is not {expected}"
        named = 0 if expected == "()" else expected.count(",") + 1 - expected.count("*, ")
        beyond = list(bare.parameters.values())[named:]
        optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        assert all(each.default is not inspect.Parameter.empty or each.kind in optional for each in beyond)

    return check


def methods(**signatures: str) -> Check:
    """Check method signatures; the prefix `async ` marks coroutines."""

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
    """Check that a type accepts `good` unchanged and rejects `bad`."""

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
P = "tests/published/modules/"
RECORDS = "tests/capture/"
STYLE = "tests/published/style/test_agents_and_models.py::"
