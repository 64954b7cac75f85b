"""Validation of schemas that consist of common keywords, without a package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to, resolve


class Problem(NamedTuple):
    """A violation: the JSON pointer to the violated keyword, and the reason."""

    pointer: str
    message: str


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _are_scalars(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_scalar, value))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _are_types(value: object) -> bool:
    names = [value] if isinstance(value, str) else value
    return _are_names(names) and bool(names) and set(names) <= _TYPES.keys()  # type: ignore[call-overload]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": _is_text,
    "number": _is_number,
    "integer": lambda value: _is_integer(value) or (isinstance(value, float) and value.is_integer()),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_SHAPES: dict[str, Callable[[object], bool]] = {
    "type": _are_types,
    "enum": _are_scalars,
    "const": _is_scalar,
    "required": _are_names,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_length),
    **dict.fromkeys(("title", "description", "$comment"), _is_text),
    "default": lambda value: True,
    "examples": lambda value: isinstance(value, list),
}
"""The keywords without schemas in them, and their valid values."""
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
_LENGTHS: dict[str, tuple[type, Callable[[int, int], bool]]] = {
    "minLength": (str, int.__ge__),
    "maxLength": (str, int.__le__),
    "minItems": (list, int.__ge__),
    "maxItems": (list, int.__le__),
}


def uncommon_part(root: Schema) -> str | None:
    """Return the JSON pointer to the first keyword that only a full validator checks, None if there is none."""
    return _Survey(root).uncommon(root, "#", ())


class _Survey:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: set[str] = set()

    def uncommon(self, schema: object, at: str, trail: tuple[str, ...]) -> str | None:
        if isinstance(schema, bool):
            return None
        if not isinstance(schema, dict):
            return at
        for keyword, value in schema.items():
            here = pointer_to(at, keyword)
            found = here
            if keyword in _SHAPES:
                found = None if _SHAPES[keyword](value) else here
            elif keyword in {"items", "additionalProperties"}:
                found = self.uncommon(value, here, trail)
            elif (keyword in {"properties", "$defs", "definitions"} and isinstance(value, dict)) or (
                keyword in {"anyOf", "allOf"} and isinstance(value, list) and value
            ):
                parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
                each = (self.uncommon(part, pointer_to(here, name), trail) for name, part in parts)
                found = next((pointer for pointer in each if pointer is not None), None)
            elif keyword == "$ref":
                found = self._uncommon_reference(value, here, trail)
            if found is not None:
                return found
        return None

    def _uncommon_reference(self, reference: object, at: str, trail: tuple[str, ...]) -> str | None:
        if not isinstance(reference, str) or reference in trail:
            return at
        parent, _, _ = reference.rpartition("/")
        if parent not in {"#/$defs", "#/definitions"}:
            return at
        if reference in self._known:
            return None
        try:
            found = self.uncommon(resolve(self._root, reference), reference, (*trail, reference))
        except SchemaError:
            return at
        self._known.add(reference)
        return found


class CommonValidator:
    """A validator for a schema without uncommon parts."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def is_valid(self, value: object) -> bool:
        """Return whether the value meets the schema."""
        return self.problem(value) is None

    def problem(self, value: object) -> Problem | None:
        """Return the first violation, None if the value is valid."""
        return next(self._problems(self._root, value, "#"), None)

    def _problems(self, schema: Schema, value: object, at: str) -> Iterator[Problem]:
        if isinstance(schema, bool):
            if not schema:
                yield Problem(at, "no value is allowed here")
            return
        for keyword, expected in schema.items():
            here = pointer_to(at, keyword)
            if not _meets(keyword, expected, value):
                yield Problem(here, f"{value!r:.100} does not meet {keyword} {expected!r:.100}")
            elif keyword == "$ref":
                yield from self._problems(resolve(self._root, expected), value, expected)
            elif keyword == "allOf":
                for index, part in enumerate(expected):
                    yield from self._problems(part, value, pointer_to(here, index))
            elif keyword == "anyOf" and all(any(self._problems(part, value, here)) for part in expected):
                yield Problem(here, f"{value!r:.100} meets no branch")
        if isinstance(value, list) and "items" in schema:
            for item in value:
                yield from self._problems(schema["items"], item, pointer_to(at, "items"))
        if isinstance(value, dict):
            yield from self._problems_of_properties(schema, value, at)

    def _problems_of_properties(self, schema: JsonObject, value: JsonObject, at: str) -> Iterator[Problem]:
        described = schema.get("properties", {})
        for name, inner in value.items():
            if name in described:
                yield from self._problems(described[name], inner, pointer_to(at, "properties", name))
            else:
                rest = schema.get("additionalProperties", True)
                yield from self._problems(rest, inner, pointer_to(at, "additionalProperties"))


def _meets(keyword: str, expected: Any, value: Any) -> bool:
    """Return whether a value meets a keyword that has no schema in it."""
    if keyword == "type":
        return any(_TYPES[name](value) for name in ([expected] if isinstance(expected, str) else expected))
    if keyword in {"enum", "const"}:
        return any(_is_same(member, value) for member in (expected if keyword == "enum" else [expected]))
    if keyword == "required":
        return not isinstance(value, dict) or all(name in value for name in expected)
    if keyword in _BOUNDS:
        return not _is_number(value) or _BOUNDS[keyword](value, expected)
    if keyword in _LENGTHS:
        kind, compare = _LENGTHS[keyword]
        return not isinstance(value, kind) or compare(len(value), expected)  # type: ignore[arg-type]
    return True


def _is_same(member: object, value: object) -> bool:
    # In Python, True equals 1.
    return isinstance(member, bool) == isinstance(value, bool) and member == value
