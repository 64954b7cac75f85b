"""Read JSON, YAML and TOML into plain JSON values, whatever a hostile text would have us do."""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from typing import Any, Literal

import orjson
import yaml

DocumentFormat = Literal["json", "yaml", "xml", "toml", "csv"]

LONGEST_DOCUMENT = 200_000
"""Characters of a document."""
DEEPEST = 100
"""Levels of objects and lists in each other."""
MOST_VALUES = 100_000
"""Values of one document; what a YAML alias stands for counts each time."""

_LONGEST_NUMBER = 1_000


class Unreadable(ValueError):
    """A text is no document of its format; the message says what is wrong with it."""


def read_json(text: str) -> Any:
    """The value of a JSON text; raises `Unreadable`."""
    try:
        return bounded(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error


def read_toml(text: str) -> Any:
    """The value of a TOML text, its dates as texts; raises `Unreadable`."""
    try:
        return bounded(tomllib.loads(text))
    except RecursionError as error:
        raise Unreadable(_too_deep()) from error
    except ValueError as error:
        raise Unreadable(f"not TOML: {error}") from error


def read_yaml(text: str) -> Any:
    """The value of the one YAML document of a text; raises `Unreadable`.

    As PyYAML's safe loader reads it, but dates, `12:30` and the key `on` are texts, for JSON has nothing else for
    them. Merge keys (`<<`) are refused.
    """
    try:
        # By events first: composing a tree recurses in C, where nothing stops it.
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
    """The same value with texts for dates and for whole-numbered keys; `Unreadable` where JSON or the bounds end."""
    return _Bounds().plain(value, 0)


class _Bounds:
    """Counts what is visited: an alias of an alias of an alias is small to write and large to read."""

    def __init__(self) -> None:
        self._count = 0

    def plain(self, value: Any, depth: int) -> Any:
        self._count += 1
        if self._count > MOST_VALUES:
            raise Unreadable(f"more than {MOST_VALUES} values")
        if depth > DEEPEST:
            raise Unreadable(_too_deep())
        if isinstance(value, dict):
            return {_key(key): self.plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, float) and not math.isfinite(value):
            raise Unreadable(f"{value} is no number of JSON")
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise Unreadable(f"a {type(value).__name__} is no value of JSON")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise Unreadable(f"the key {key!r:.80} is no text")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, in C where it is there, without what JSON cannot tell."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                # Merging merged mappings of aliases doubles with every line.
                raise yaml.constructor.ConstructorError(
                    problem="merge keys (<<) are not read", problem_mark=key.start_mark
                )
            if key.tag == "tag:yaml.org,2002:bool":
                # `on` and `no` may be truth values, but never the name of a property that is one.
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
    """The JSON number that a text writes, such as `-3` or `1.5e3`; None where it writes none."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def _too_deep() -> str:
    return f"nested more than {DEEPEST} levels deep"


def _one_line(message: str) -> str:
    return " ".join(message.split())
