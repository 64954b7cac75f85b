"""Make a JSON Schema strict: every property that it names is required, and nothing else is allowed."""

from __future__ import annotations

from typing import Any

_OF_SCHEMAS = ("items", "additionalItems", "additionalProperties", "unevaluatedItems", "contains", "propertyNames")
_OF_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_OF_LISTS = ("anyOf", "oneOf", "prefixItems")


def strict_schema(schema: Any) -> Any:
    """A strict copy. An object of which no property is named stays as open as it was.

    The parts of an `allOf` describe one object together, so it is the whole that is closed; what stands under `not`
    and `if` is a question, not a description, and stays as it is.
    """
    return _strict(schema, is_closed=True)


def _strict(schema: Any, *, is_closed: bool) -> Any:
    if not isinstance(schema, dict):
        # `items` was a list of schemas once.
        return [_strict(each, is_closed=True) for each in schema] if isinstance(schema, list) else schema
    strict = {name: _strict_part(name, part, is_closed=is_closed) for name, part in schema.items()}
    is_named = isinstance(schema.get("properties"), dict)
    is_made_of_parts = any("properties" in part for part in schema.get("allOf", ()) if isinstance(part, dict))
    if is_named:
        strict["required"] = list(schema["properties"])
    if is_named or is_made_of_parts:
        strict.pop("additionalProperties", None)
    if is_closed and is_made_of_parts:
        strict["unevaluatedProperties"] = False
    elif is_closed and is_named:
        strict["additionalProperties"] = False
    return strict


def _strict_part(name: str, part: Any, *, is_closed: bool) -> Any:
    if name in _OF_SCHEMAS:
        return _strict(part, is_closed=True)
    if name in _OF_MAPPINGS and isinstance(part, dict):
        return {key: _strict(each, is_closed=True) for key, each in part.items()}
    if name in _OF_LISTS and isinstance(part, list):
        return [_strict(each, is_closed=is_closed or name == "prefixItems") for each in part]
    if name == "allOf" and isinstance(part, list):
        return [_strict(each, is_closed=False) for each in part]
    return part
