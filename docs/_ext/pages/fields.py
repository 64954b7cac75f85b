"""Keys of the configuration, from the classes that read them."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Container, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from nemo_gym.contract.schema import field_docstrings
from nemo_gym.paths import INSTALL_ROOT
from pages.markdown import directive, prose

BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
UNSET = "not set"


class Key(NamedTuple):
    """A key, as a reader of the reference sees it."""

    name: str
    type: str
    default: str
    """As YAML; empty if the key is required."""
    meaning: str

    def as_markdown(self, prefix: str = "") -> str:
        """Return the entry of the key."""
        default = f"`{self.default}`" if self.default else "required"
        return directive(
            "confval", prefix + self.name, prose(self.meaning), [("type", f"`{self.type}`"), ("default", default)]
        )


def section(keys: Iterable[Key], prefix: str = "") -> str:
    """Return the entries of keys, whose names get a prefix, such as that of their block."""
    return "\n".join(key.as_markdown(prefix) for key in keys)


def keys_of_model(model: type[BaseModel], *, besides: Container[str] = (), readme: str = "") -> list[Key]:
    """Return the keys of a pydantic model, except those in `besides`. A README may have meanings that it lacks."""
    meanings = field_docstrings(model)
    return [
        Key(
            info.alias or name,
            type_words(info.annotation),
            _default_of(info),
            _sentences(info.description or meanings.get(name) or meaning_in(readme, name), _limits_of(info)),
        )
        for name, info in model.model_fields.items()
        if name not in besides
    ]


def type_words(kind: object) -> str:
    """Return a type as the author of a YAML file writes it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return type_words(arguments[0])
    if origin in (typing.Union, types.UnionType):
        known = [each for each in arguments if each is not types.NoneType]
        return " | ".join([*dict.fromkeys(map(type_words, known)), *(["null"] if len(known) < len(arguments) else [])])
    if origin is typing.Literal:
        return " | ".join(map(_yaml, arguments))
    if origin in (list, tuple):
        inner = dict.fromkeys(type_words(each) for each in arguments if each is not Ellipsis)
        return f"list of {' or '.join(inner)}"
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return "mapping"
    if not inspect.isclass(kind):
        return "any" if kind is typing.Any else str(kind)
    return _class_words(kind)


def _class_words(kind: type) -> str:
    if issubclass(kind, Enum):
        return " | ".join(str(member.value) for member in kind)
    if issubclass(kind, BaseModel | Mapping):
        return "mapping"
    return {Path: "path", object: "any"}.get(kind, kind.__name__)


def _sentences(*parts: str) -> str:
    return " ".join(" ".join(part.split()) for part in parts if part)


def _default_of(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    default = info.get_default(call_default_factory=True, validated_data={})
    return "null" if default is PydanticUndefined else _yaml(default)


def _yaml(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Path):
        return str(value.relative_to(INSTALL_ROOT) if value.is_relative_to(INSTALL_ROOT) else value)
    if isinstance(value, BaseModel):
        return _yaml(value.model_dump(mode="json", exclude_unset=True))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_yaml(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value) if str(value) else '""'


def _limits_of(info: FieldInfo) -> str:
    """Return the bounds of a number as a sentence."""
    found = [
        f"{phrase} {limit}"
        for constraint in info.metadata
        for name, phrase in BOUNDS.items()
        if (limit := getattr(constraint, name, None)) is not None
    ]
    text = " and ".join(found)
    return f"{text[:1].upper()}{text[1:]}." if found else ""


def meaning_in(readme: str, key: str) -> str:
    """Return the last cell of the row that begins with this key in one of a README's tables."""
    row = re.search(rf"^\| [^|]*`{re.escape(key)}`[^|]*\|(?:.*(?<!\\)\|)? (.+) \|$", readme, re.MULTILINE)
    return f"{row[1][:1].upper()}{row[1][1:].rstrip('.')}." if row else ""
