"""Arguments that fit a tool's schema, but not the task: nonexistent names, zeros, and empty lists and strings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

UNKNOWN = "no_such_value"
MOST_LEVELS = 8
"""The maximum depth of the arguments. A limit is needed, because a schema may be recursive."""


def odd_arguments(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield arguments, as JSON text, that fit the JSON Schema of a tool's parameters but hardly any task.

    Unlike malformed arguments, they usually reach the tool's code. Only a format or pattern in the schema may reject
    them.
    """
    shared = parameters.get("$defs") or {}
    for text in (UNKNOWN, ""):
        yield json.dumps(_object_of(parameters, text, shared, MOST_LEVELS))


def _object_of(schema: Mapping[str, Any], text: str, shared: Mapping[str, Any], levels: int) -> dict[str, object]:
    properties = schema.get("properties") or {}
    required = [name for name in properties if name in (schema.get("required") or ())]
    # Include optional properties only at the top level, because a schema may be recursive, and only if `text` is set.
    given = properties if text and levels == MOST_LEVELS else required
    return {name: _value_of(properties[name], text, shared, levels - 1) for name in given}


def _value_of(schema: object, text: str, shared: Mapping[str, Any], levels: int) -> object:
    if not isinstance(schema, Mapping) or levels <= 0:
        return None
    if "$ref" in schema:
        return _value_of(shared.get(str(schema["$ref"]).rpartition("/")[2]), text, shared, levels - 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value_of(schema[key][0], text, shared, levels - 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "integer" | "number":
            return _number_of(schema)
        case "boolean":
            return False
        case "array":
            least = schema.get("minItems", 1 if text else 0)
            return [_value_of(schema.get("items"), text, shared, levels - 1)] * least
        case "object":
            return _object_of(schema, text, shared, levels)
        case "null":
            return None
        case _:
            return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]


def _number_of(schema: Mapping[str, Any]) -> float:
    """Return a number close to zero within the bounds of the schema."""
    low = max(0.0, schema.get("minimum", 0), schema.get("exclusiveMinimum", -1) + 1)
    number = float(min(low, schema.get("maximum", low), schema.get("exclusiveMaximum", low + 1) - 1))
    return int(number) if number.is_integer() else number
