"""Parse untrusted JSON, YAML and TOML into plain JSON values."""

from __future__ import annotations

import datetime
import json
import math
import re
import tomllib
from typing import Any, Literal

import orjson
import yaml

DocumentFormat = Literal["json", "yaml", "xml", "toml", "csv"]

LONGEST_DOCUMENT = 200_000
"""Maximum number of characters in a document."""
DEEPEST = 100
"""Maximum number of levels of nested objects and lists."""
MOST_VALUES = 100_000
"""Maximum number of values in a document. Each YAML alias counts as a copy of its target."""

_LONGEST_NUMBER = 1_000


class Unreadable(ValueError):
    """An error for a text that is not a valid document in the expected format. The message describes the problem."""


def read_json(text: str) -> Any:
    """Parse a JSON text. Raises `Unreadable` if it is invalid or exceeds the limits."""
    try:
        value = bounded(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    check_keys(text)
    return value


def check_keys(text: str) -> None:
    """Raise `Unreadable` if a JSON object repeats a key. Other parsers would silently keep only the last value."""
    # Keep numbers as text, because Python rejects integers with too many digits.
    try:
        json.loads(text, object_pairs_hook=_unique_keys, parse_int=str, parse_float=str)
    except RecursionError as error:
        raise Unreadable(_too_deep()) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Unreadable(_key_twice(key))
        found[key] = value
    return found


def _key_twice(key: str) -> str:
    return f"the key {key!r:.80} occurs twice in one object"


def read_toml(text: str) -> Any:
    """Parse a TOML text. Dates become strings. Raises `Unreadable` if it is invalid or exceeds the limits."""
    try:
        return bounded(tomllib.loads(text))
    except RecursionError as error:
        raise Unreadable(_too_deep()) from error
    except ValueError as error:
        raise Unreadable(f"not TOML: {error}") from error


def read_yaml(text: str) -> Any:
    """Parse a text with one YAML document. Raises `Unreadable` if it is invalid or exceeds the limits.

    Unlike with PyYAML's safe loader, dates, `12:30` and the key `on` are strings, because JSON has no type for them.
    Merge keys (`<<`) are rejected.
    """
    try:
        # Check the depth of the parser's events first, because composing a tree recurses in C without a limit.
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise Unreadable(_too_deep())
        return bounded(yaml.load(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise Unreadable(f"not YAML: {_one_line(str(error))}") from error
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"not YAML: {error}") from error


def bounded(value: Any) -> Any:
    """Convert dates and integer keys to strings. Raises `Unreadable` for non-JSON values or exceeded limits."""
    return _Bounds().plain(value, 0)


class _Bounds:
    """A counter of visited values, which limits the size. Nested YAML aliases can expand a small text enormously."""

    def __init__(self) -> None:
        self._count = 0

    def plain(self, value: Any, depth: int) -> Any:
        self._count += 1
        if self._count > MOST_VALUES:
            raise Unreadable(f"the document has more than {MOST_VALUES} values")
        if depth > DEEPEST:
            raise Unreadable(_too_deep())
        if isinstance(value, dict):
            return _unique_keys([(_key(key), self.plain(item, depth + 1)) for key, item in value.items()])
        if isinstance(value, list):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, float) and not math.isfinite(value):
            raise Unreadable(f"{value} is not a JSON number")
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise Unreadable(f"a value of type {type(value).__name__} is not a JSON value")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise Unreadable(f"the key {key!r:.80} is not a string")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader (the C version if available), without types that JSON does not have."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.constructor.ConstructorError(
                problem="a key occurs twice in one mapping", problem_mark=node.start_mark
            )
        return mapping

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                # Reject merge keys, because together with aliases they can double the size with every line.
                raise yaml.constructor.ConstructorError(
                    problem="merge keys (<<) are not supported", problem_mark=key.start_mark
                )
            if key.tag == "tag:yaml.org,2002:bool":
                # Keep property names such as `on` and `no` as strings, although YAML 1.1 defines them as booleans.
                key.tag = "tag:yaml.org,2002:str"

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML reads it from the class
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|\.(?:inf|Inf|INF))\Z|\.(?:nan|NaN|NAN)\Z"
    ),
    list("-+0123456789."),
)


def number_of(text: str) -> int | float | None:
    """Parse a decimal number such as `-3`, `+.5` or `1.5e3`. Return None for other texts and for too long ones."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def _too_deep() -> str:
    return f"the document is nested more than {DEEPEST} levels deep"


def _one_line(message: str) -> str:
    return " ".join(message.split())
