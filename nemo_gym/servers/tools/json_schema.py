"""JSON Schemas for a language model: without pydantic's titles, or described in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym.jsonl import JsonObject

SCHEMAS_BY_NAME = frozenset({"properties", "$defs"})
VALUES = frozenset({"default", "const", "enum", "examples"})


def without_titles(schema: Mapping[str, object]) -> JsonObject:
    """Return a schema without the titles that pydantic generates. Properties and values called `title` stay."""
    return {
        key: _without_titles_under(key, value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _without_titles_under(key: str, value: object) -> object:
    if isinstance(value, list) and key not in VALUES:
        return [_without_titles_under("", each) for each in value]
    if not isinstance(value, dict) or key in VALUES:
        return value
    if key in SCHEMAS_BY_NAME:
        return {name: _without_titles_under("", schema) for name, schema in value.items()}
    return without_titles(value)


def type_words(schema: object, shared: Mapping[str, object]) -> str:
    """Describe the values of a schema in a few words. `shared` holds the schemas that a `$ref` may name."""
    if not isinstance(schema, dict):
        # A schema may also be `true` or `false`, which do not name a type.
        return "any"
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        # Follow each reference only once, because a schema may refer to itself.
        return type_words(shared.get(name), {other: each for other, each in shared.items() if other != name})
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    if "anyOf" in schema:
        return " or ".join(type_words(each, shared) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {type_words(schema.get('items', {}), shared)}"
    if schema.get("properties"):
        return f"object with {', '.join(schema['properties'])}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
