"""Flatten a JSON Schema: replace references and `allOf` with one merged schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from typing import Any

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to, resolve

MOST_STEPS = 12
"""The number of nested references, branches and values after which a schema counts as infinitely deep."""


def flattened(root: Schema, schema: Schema, at: str) -> JsonObject:
    """Return the schema as one dict without `$ref`, `allOf` and `const`. `at` is the schema's JSON pointer."""
    if not isinstance(schema, dict):
        if schema is False:
            raise SchemaError(at, "no value is allowed here, because the schema is false")
        return {}
    flat = {keyword: value for keyword, value in schema.items() if keyword not in {"$ref", "allOf", "const"}}
    if "const" in schema:
        flat = _merged(flat, {"enum": [schema["const"]]}, at)
    if "$ref" in schema:
        flat = _merged(flat, flattened(root, resolve(root, schema["$ref"]), schema["$ref"]), at)
    for index, part in enumerate(schema.get("allOf", ())):
        flat = _merged(flat, flattened(root, part, pointer_to(at, "allOf", index)), at)
    return flat


def branch(root: Schema, flat: JsonObject, keyword: str, index: int, at: str) -> JsonObject:
    """Return a flat schema narrowed to one branch of its `anyOf` or `oneOf`."""
    rest = {name: value for name, value in flat.items() if name != keyword}
    return _merged(rest, flattened(root, flat[keyword][index], pointer_to(at, keyword, index)), at)


def height(
    root: Schema, schema: Schema, steps: int = MOST_STEPS, known: dict[tuple[int, int], float] | None = None
) -> float:
    """Return a lower bound for the nesting depth of instances: 0 for a number, 1 for `{}`, `inf` if none is finite."""
    known = {} if known is None else known
    key = (id(schema), steps)
    if key not in known:
        known[key] = _measured(root, schema, lambda part: height(root, part, steps - 1, known)) if steps else inf
    return known[key]


def _measured(root: Schema, schema: Schema, height_of: Callable[[Schema], float]) -> float:
    if not isinstance(schema, dict):
        return inf if schema is False else 0
    if "enum" in schema or "const" in schema:
        return 0
    kind = schema.get("type", "object" if "required" in schema else None)
    heights: list[float] = [0]
    if kind == "object":
        properties = schema.get("properties", {})
        heights += [1 + height_of(properties.get(name, True)) for name in ("", *schema.get("required", ()))]
    if kind == "array" and schema.get("minItems") and "prefixItems" not in schema:
        heights.append(1 + height_of(schema.get("items", True)))
    if "$ref" in schema:
        heights.append(height_of(resolve(root, schema["$ref"])))
    heights += map(height_of, schema.get("allOf", ()))
    heights += [min(map(height_of, schema[keyword])) for keyword in ("anyOf", "oneOf") if schema.get(keyword)]
    return max(heights)


def _merged(left: JsonObject, right: JsonObject, at: str) -> JsonObject:
    """Return a flat schema with the constraints of both schemas.

    If two values of a keyword cannot be merged, keep the left one. A sample that violates the right one is rejected
    later.
    """
    merged = {**right, **left}
    for keyword in [word for word in left if word in right and word in _MERGERS]:
        merged[keyword] = _MERGERS[keyword](left[keyword], right[keyword])
        if merged[keyword] == [] and keyword in {"type", "enum"}:
            raise SchemaError(at, f"two parts of the schema allow no {keyword} in common")
    return merged


def _common_types(left: str | list[str], right: str | list[str]) -> list[str]:
    ours, theirs = ([kinds] if isinstance(kinds, str) else kinds for kinds in (left, right))
    common = [kind for kind in ours if kind in theirs or (kind == "integer" and "number" in theirs)]
    return common + [kind for kind in theirs if kind == "integer" and "number" in ours and kind not in common]


def _common_members(left: list[object], right: list[object]) -> list[object]:
    # Compare members as JSON text, because 1 == True in Python.
    allowed = {json.dumps(member, sort_keys=True) for member in right}
    return [member for member in left if json.dumps(member, sort_keys=True) in allowed]


def _both(left: Schema, right: Schema) -> Schema:
    return {"allOf": [left, right]}


_MERGERS: dict[str, Callable[[Any, Any], Any]] = {
    "type": _common_types,
    "enum": _common_members,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "uniqueItems": lambda left, right: left or right,
    "required": lambda left, right: [*left, *(name for name in right if name not in left)],
    "properties": lambda left, right: {
        name: _both(left.get(name, True), right.get(name, True)) for name in {**left, **right}
    },
    **dict.fromkeys(("items", "additionalProperties", "propertyNames"), _both),
}
