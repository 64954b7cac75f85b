"""A JSON Schema for readers: without what pydantic adds to it, and in a few words."""

from __future__ import annotations

from typing import Any

SCHEMAS_BY_NAME = frozenset({"properties", "$defs"})
VALUES = frozenset({"default", "const", "enum", "examples"})


def without_titles(schema: Any) -> Any:
    """A schema without the titles that pydantic makes up; properties and values called `title` stay."""
    if isinstance(schema, list):
        return [without_titles(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles_under(key, value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _without_titles_under(key: str, value: Any) -> Any:
    if key in VALUES:
        return value
    if key in SCHEMAS_BY_NAME:
        return {name: without_titles(schema) for name, schema in value.items()}
    return without_titles(value)


def type_words(schema: dict[str, Any], shared: dict[str, Any]) -> str:
    """What a value of this schema is, said to a model; `shared` are the schemas that a `$ref` may name."""
    if "$ref" in schema:
        return type_words(shared.get(schema["$ref"].removeprefix("#/$defs/"), {}), shared)
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
    return str(schema.get("type", "any"))
