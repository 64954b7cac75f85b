"""Whether a value is a valid instance of a JSON Schema, strictly enough to trust what was sampled."""

from __future__ import annotations

from collections.abc import Callable, Sized
from fractions import Fraction
from typing import Any

from responses_api_models.sample_model.json_schema.formats import FORMATS
from responses_api_models.sample_model.json_schema.patterns import pattern
from responses_api_models.sample_model.json_schema.references import Schema, resolve


def fingerprint(value: Any) -> Any:
    """The same for values that are equal as JSON: 1 and 1.0 are, 1 and true are not. It can be hashed."""
    if isinstance(value, bool) or value is None:
        return (type(value), value)
    if isinstance(value, list):
        return (list, tuple(fingerprint(item) for item in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, fingerprint(item)) for key, item in value.items()))
    return value


def is_type(value: Any, name: str) -> bool:
    """Whether the value is of this JSON type; 1.0 is an integer."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, _CLASSES.get(name, ()))


_CLASSES: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
}


def exact(number: float) -> Fraction:
    """The number as it is written in decimal: a tenth, not the nearest binary fraction."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def is_valid(value: Any, schema: Schema, root: Schema) -> bool:
    """Whether the value is an instance of the schema; `root` is what its references start from.

    A `format` counts as met only by strings of the kinds in `FORMATS`; below a `not` that is too strict, and a
    string of another kind may pass.
    """
    if isinstance(schema, bool):
        return schema
    for keyword, argument in schema.items():
        check = _CHECKS.get(keyword)
        if check is not None and not check(value, argument, schema, root):
            return False
    return True


def value_schemas(schema: dict[str, Any], name: str) -> list[Schema]:
    """All schemas that an object's schema asks the value of this property to meet."""
    found = []
    if name in schema.get("properties", ()):
        found.append(schema["properties"][name])
    for expression, argument in schema.get("patternProperties", {}).items():
        if pattern(expression).matches(name):
            found.append(argument)
    if not found and "additionalProperties" in schema:
        found.append(schema["additionalProperties"])
    return found


def item_schema(schema: dict[str, Any], index: int) -> Schema:
    """The schema that an array's schema asks this item to meet, in either spelling of tuples."""
    items = schema.get("items", True)
    heads, rest = (items, schema.get("additionalItems", True)) if isinstance(items, list) else ((), items)
    heads = schema.get("prefixItems", heads)
    return heads[index] if index < len(heads) else rest


def _type(value: Any, names: Any, schema: Any, root: Any) -> bool:
    return is_type(value, names) if isinstance(names, str) else any(is_type(value, name) for name in names)


def _enum(value: Any, members: Any, schema: Any, root: Any) -> bool:
    print_of_value = fingerprint(value)
    return any(fingerprint(member) == print_of_value for member in members)


def _number(holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def check(value: Any, bound: Any, schema: Any, root: Any) -> bool:
        return not is_type(value, "number") or holds(value, bound)

    return check


def _size(kind: type[Sized], holds: Callable[[int, int], bool]) -> Callable[..., bool]:
    def check(value: Any, bound: Any, schema: Any, root: Any) -> bool:
        return not isinstance(value, kind) or holds(len(value), bound)

    return check


def _minimum(value: Any, bound: Any, schema: Any, root: Any) -> bool:
    # Draft 4 spells an exclusive bound as a flag beside it.
    is_exclusive = schema.get("exclusiveMinimum") is True
    return not is_type(value, "number") or (value > bound if is_exclusive else value >= bound)


def _maximum(value: Any, bound: Any, schema: Any, root: Any) -> bool:
    is_exclusive = schema.get("exclusiveMaximum") is True
    return not is_type(value, "number") or (value < bound if is_exclusive else value <= bound)


def _format(value: Any, name: Any, schema: Any, root: Any) -> bool:
    # FORMATS knows only some of a format's strings; what the author lists is taken at his word.
    if not isinstance(value, str) or name not in FORMATS or "enum" in schema or "const" in schema:
        return True
    return pattern(FORMATS[name]).matches(value)


def _items(value: Any, _: Any, schema: Any, root: Any) -> bool:
    if not isinstance(value, list):
        return True
    return all(is_valid(item, item_schema(schema, index), root) for index, item in enumerate(value))


def _unique(value: Any, wanted: Any, schema: Any, root: Any) -> bool:
    return not wanted or not isinstance(value, list) or len(set(map(fingerprint, value))) == len(value)


def _contains(value: Any, argument: Any, schema: Any, root: Any) -> bool:
    if not isinstance(value, list):
        return True
    count = sum(is_valid(item, argument, root) for item in value)
    return bool(schema.get("minContains", 1) <= count <= schema.get("maxContains", count))


def _properties(value: Any, _: Any, schema: Any, root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(
        is_valid(item, argument, root) for name, item in value.items() for argument in value_schemas(schema, name)
    )


def _required(value: Any, names: Any, schema: Any, root: Any) -> bool:
    return not isinstance(value, dict) or isinstance(names, bool) or all(name in value for name in names)


def _dependencies(value: Any, argument: Any, schema: Any, root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(
        all(other in value for other in needed) if isinstance(needed, list) else is_valid(value, needed, root)
        for name, needed in argument.items()
        if name in value
    )


def _if(value: Any, condition: Any, schema: Any, root: Any) -> bool:
    branch = "then" if is_valid(value, condition, root) else "else"
    return is_valid(value, schema.get(branch, True), root)


_CHECKS: dict[str, Callable[[Any, Any, Any, Any], bool]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda value, member, schema, root: fingerprint(value) == fingerprint(member),
    "minimum": _minimum,
    "maximum": _maximum,
    "exclusiveMinimum": _number(lambda value, bound: isinstance(bound, bool) or value > bound),
    "exclusiveMaximum": _number(lambda value, bound: isinstance(bound, bool) or value < bound),
    "multipleOf": _number(lambda value, step: (exact(value) / exact(step)).denominator == 1),
    "minLength": _size(str, lambda size, bound: size >= bound),
    "maxLength": _size(str, lambda size, bound: size <= bound),
    "pattern": lambda value, text, schema, root: not isinstance(value, str) or pattern(text).matches(value),
    "format": _format,
    "items": _items,
    "prefixItems": lambda value, _, schema, root: "items" in schema or _items(value, _, schema, root),
    "minItems": _size(list, lambda size, bound: size >= bound),
    "maxItems": _size(list, lambda size, bound: size <= bound),
    "uniqueItems": _unique,
    "contains": _contains,
    "properties": _properties,
    "patternProperties": lambda value, _, schema, root: "properties" in schema or _properties(value, _, schema, root),
    "additionalProperties": lambda value, _, schema, root: (
        "properties" in schema or "patternProperties" in schema or _properties(value, _, schema, root)
    ),
    "required": _required,
    "propertyNames": lambda value, argument, schema, root: (
        not isinstance(value, dict) or all(is_valid(name, argument, root) for name in value)
    ),
    "minProperties": _size(dict, lambda size, bound: size >= bound),
    "maxProperties": _size(dict, lambda size, bound: size <= bound),
    "dependentRequired": _dependencies,
    "dependentSchemas": _dependencies,
    "dependencies": _dependencies,
    "allOf": lambda value, parts, schema, root: all(is_valid(value, part, root) for part in parts),
    "anyOf": lambda value, parts, schema, root: any(is_valid(value, part, root) for part in parts),
    "oneOf": lambda value, parts, schema, root: sum(is_valid(value, part, root) for part in parts) == 1,
    "not": lambda value, argument, schema, root: not is_valid(value, argument, root),
    "if": _if,
    "$ref": lambda value, reference, schema, root: is_valid(value, resolve(root, reference), root),
}
