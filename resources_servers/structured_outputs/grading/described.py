"""Look up types, properties and items in a JSON Schema, to convert texts to the types that the schema expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from resources_servers.structured_outputs.grading.formats import number_of, read_json
from resources_servers.structured_outputs.grading.references import referenced

_MOST_REFERENCES = 50
_TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Described:
    """All subschemas that describe the same value, such as a schema, its `allOf`, and the target of its `$ref`."""

    def __init__(self, root: Any, schema: Any) -> None:
        self._root = root
        self._ways = list(_ways(root, schema, _MOST_REFERENCES))

    @property
    def types(self) -> set[str]:
        """The JSON types that the schema expects. The set is empty if the schema does not restrict the type."""
        found: set[str] = set()
        for way in self._ways:
            named = way.get("type")
            if named is not None:
                found |= set(named if isinstance(named, list) else [named])
            elif "properties" in way:
                found.add("object")
            elif "items" in way:
                found.add("array")
            for value in [*way.get("enum", []), *([way["const"]] if "const" in way else [])]:
                if named is None:
                    found.add("null" if value is None else _TYPE_NAMES[type(value)])
        return found

    @property
    def properties(self) -> dict[str, Any]:
        """The properties that the schema names, with their schemas."""
        found: dict[str, Any] = {}
        for way in self._ways:
            if isinstance(way.get("properties"), dict):
                found = {**way["properties"], **found}
        return found

    def at(self, name: str) -> Described:
        """Return a property's subschemas. For a property that is not named, use those in `additionalProperties`."""
        open_ = next((way["additionalProperties"] for way in self._ways if "additionalProperties" in way), True)
        return Described(self._root, self.properties.get(name, open_))

    @property
    def items(self) -> Described:
        """The subschemas that describe the items of a list."""
        return Described(self._root, next((way["items"] for way in self._ways if "items" in way), True))

    def value_of(self, text: str) -> Any:
        """Convert a text to a type that the schema allows, or return it as is.

        Spaces around a number, boolean or null are ignored, because CSV often has one after each comma.
        """
        types = self.types
        if text == "" and "null" in types:
            return None
        if "string" in types:
            return text
        plain = text.strip()
        number = number_of(plain)
        if isinstance(number, int) and types & {"integer", "number"}:
            return number
        if number is not None and "number" in types:
            return number
        if "boolean" in types and plain.lower() in ("true", "false"):
            return plain.lower() == "true"
        if "null" in types and plain.lower() in ("", "null"):
            return None
        return text

    def json_of(self, text: str) -> Any:
        """Convert a CSV cell to a type that the schema allows. A list or an object is written as JSON.

        Raises `Unreadable` if the JSON repeats a key or exceeds the limits.
        """
        if self.types & {"array", "object"} and text.lstrip()[:1] in ("[", "{"):
            try:
                orjson.loads(text)
            except orjson.JSONDecodeError:
                return text
            return read_json(text)
        return self.value_of(text)


def _ways(root: Any, schema: Any, references_left: int) -> Iterator[dict[str, Any]]:
    """Yield a schema and all subschemas that describe the same value. Follow at most `references_left` references."""
    if not isinstance(schema, dict) or references_left <= 0:
        return
    yield schema
    if "$ref" in schema:
        yield from _ways(root, referenced(root, schema["$ref"]), references_left - 1)
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key) or []]
    dependent = schema.get("dependentSchemas")
    parts += dependent.values() if isinstance(dependent, dict) else []
    for part in [*parts, schema.get("then"), schema.get("else")]:
        yield from _ways(root, part, references_left // 2)
