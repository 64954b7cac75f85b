"""A schema without references and conjunctions: one plain dict that asks for all that the schema asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import gcd, lcm
from typing import Any, NamedTuple

from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to, resolve
from responses_api_models.sample_model.json_schema.validity import exact, fingerprint, item_schema, value_schemas

Plain = dict[str, Any]
"""A schema with no `$ref`, `const`, `if` nor spellings of older drafts; its types are a list.

Its `allOf` holds only what could not be merged, to be checked afterwards.
"""

TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")
MOST_BRANCHES = 64
_CONTAINS = ("contains", "minContains", "maxContains")
_OBJECT = ("properties", "patternProperties", "additionalProperties")
_KEPT = frozenset({
    "type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "pattern", "format", "items", "prefixItems", "unevaluatedItems", "minItems", "maxItems",
    "uniqueItems", *_CONTAINS, *_OBJECT, "unevaluatedProperties", "required", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "anyOf", "oneOf", "not", "default", "examples",
})  # fmt: skip


class Flattener:
    """Makes the parts of one schema plain, each once.

    What it has made is kept by the identity of what it was made from, which therefore is kept as well.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._made: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._open: set[int] = set()

    def _once(self, key: tuple[Any, ...], sources: Any, make: Callable[[], Any]) -> Any:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = (sources, make())
        return found[1]

    def plain(self, schema: Schema, at: str) -> Plain:
        """The schema made plain; `at` is its JSON pointer. `SchemaError` where it contradicts itself."""
        if schema is True:
            return {}
        if schema is False:
            raise SchemaError(at, "no value is allowed here (the schema is false)")
        if not isinstance(schema, dict):
            raise SchemaError(at, f"a schema is an object, true or false, not {type(schema).__name__}")
        if id(schema) in self._open:
            raise SchemaError(at, "this part refers to itself and says nothing else")
        found: Plain = self._once(("plain", id(schema)), schema, lambda: self._flattened(schema, at))
        return found

    def branch(self, plain: Plain, keyword: str, index: int, at: str) -> Plain:
        """The plain schema narrowed to one branch of its `anyOf` or `oneOf`."""

        def narrowed() -> Plain:
            rest = {name: value for name, value in plain.items() if name != keyword}
            return self.merged(rest, self.plain(plain[keyword][index], pointer_to(at, keyword, index)), at)

        found: Plain = self._once((keyword, id(plain), index), plain, narrowed)
        return found

    def property(self, plain: Plain, name: str) -> Schema:
        """All that the plain schema asks of the value of this property, as one schema."""
        return self._once(("property", id(plain), name), plain, lambda: self.both(value_schemas(plain, name)))

    def closed(self, plain: Plain) -> Plain:
        """The plain schema of an object, once nothing else will add to it: what is unevaluated is additional."""
        if "unevaluatedProperties" not in plain or "additionalProperties" in plain:
            return plain
        found: Plain = self._once(
            ("closed", id(plain)), plain, lambda: {**plain, "additionalProperties": plain["unevaluatedProperties"]}
        )
        return found

    def both(self, schemas: Iterable[Schema]) -> Schema:
        """One schema that asks for all that these ask for."""
        parts = [schema for schema in schemas if schema is not True]
        if not parts:
            return True
        if len(parts) == 1:
            return parts[0]
        return self._once(("both", *map(id, parts)), parts, lambda: {"allOf": parts})

    def _flattened(self, schema: dict[str, Any], at: str) -> Plain:
        self._open.add(id(schema))
        try:
            plain = _normalised(schema, at)
            for part, where in self._conjuncts(schema, at):
                plain = self.merged(plain, self.plain(part, where), at)
            return plain
        finally:
            self._open.discard(id(schema))

    def _conjuncts(self, schema: dict[str, Any], at: str) -> Iterable[tuple[Schema, str]]:
        """What is asked for besides the plain keywords, each part with its pointer."""
        if "$ref" in schema:
            yield resolve(self._root, schema["$ref"]), schema["$ref"]
        if "$dynamicRef" in schema:
            raise SchemaError(pointer_to(at, "$dynamicRef"), "this keyword is not supported")
        for index, part in enumerate(schema.get("allOf", ())):
            yield part, pointer_to(at, "allOf", index)
        if "if" in schema:
            condition = schema["if"]
            yes = {"allOf": [condition, schema.get("then", True)]}
            no = {"allOf": [{"not": condition}, schema.get("else", True)]}
            yield {"anyOf": [yes, no]}, pointer_to(at, "if")
        for keyword in ("dependentSchemas", "dependencies"):
            for name, needed in schema.get(keyword, {}).items():
                if not isinstance(needed, list):
                    without = {"properties": {name: False}}
                    yield {"anyOf": [without, {"required": [name], "allOf": [needed]}]}, pointer_to(at, keyword, name)

    def merged(self, left: Plain, right: Plain, at: str) -> Plain:
        """A plain schema that asks for all that two ask for; `SchemaError` where they contradict each other."""
        if not left or not right:
            return left or right
        merged = {**right, **left}
        for keyword in [word for word in left if word in right and word in _MERGERS]:
            merged[keyword] = _MERGERS[keyword](left[keyword], right[keyword])
            if merged[keyword] == [] and keyword in {"type", "enum"}:
                raise SchemaError(at, f"two parts of the schema allow no {keyword} in common")
        if any(keyword in left and keyword in right for keyword in ("anyOf", "oneOf", "pattern", "format")):
            self._join_alternatives(merged, left, right)
        if "contains" in left and "contains" in right:
            merged.update({keyword: left[keyword] for keyword in _CONTAINS if keyword in left})
            _add_check(merged, {keyword: right[keyword] for keyword in _CONTAINS if keyword in right})
        if any(keyword in left for keyword in _OBJECT) and any(keyword in right for keyword in _OBJECT):
            merged.update(self._object_of(left, right))
        if _says_items(left) and _says_items(right):
            merged.update(self._items_of(left, right))
        for keyword in ("propertyNames", "unevaluatedProperties", "unevaluatedItems"):
            if keyword in left and keyword in right:
                merged[keyword] = self.both([left[keyword], right[keyword]])
        return merged

    def _join_alternatives(self, merged: Plain, left: Plain, right: Plain) -> None:
        for keyword in ("anyOf", "oneOf"):
            if keyword not in left or keyword not in right:
                continue
            if len(left[keyword]) * len(right[keyword]) > MOST_BRANCHES:
                _add_check(merged, {keyword: right[keyword]})
            else:
                merged[keyword] = [self.both([one, other]) for one in left[keyword] for other in right[keyword]]
        for keyword in ("pattern", "format"):
            if keyword in left and keyword in right and left[keyword] != right[keyword]:
                _add_check(merged, {keyword: right[keyword]})

    def _object_of(self, left: Plain, right: Plain) -> Plain:
        joined: Plain = {}
        names = {**left.get("properties", {}), **right.get("properties", {})}
        if names:
            joined["properties"] = {
                name: self.both([*value_schemas(left, name), *value_schemas(right, name)]) for name in names
            }
        expressions = {**left.get("patternProperties", {}), **right.get("patternProperties", {})}
        if expressions:
            joined["patternProperties"] = {
                text: self.both([_by_pattern(left, text), _by_pattern(right, text)]) for text in expressions
            }
        if "additionalProperties" in left or "additionalProperties" in right:
            joined["additionalProperties"] = self.both(
                side.get("additionalProperties", True) for side in (left, right)
            )
        return joined

    def _items_of(self, left: Plain, right: Plain) -> Plain:
        length = max(len(left.get("prefixItems", ())), len(right.get("prefixItems", ())))
        heads = [self.both([item_schema(left, index), item_schema(right, index)]) for index in range(length)]
        rest = self.both([left.get("items", True), right.get("items", True)])
        return {"prefixItems": heads, "items": rest} if heads else {"items": rest}


def _normalised(schema: dict[str, Any], at: str) -> Plain:
    """The plain keywords of a schema, in the spelling of the newest draft."""
    for keyword, value in schema.items():
        shape = _SHAPES.get(keyword)
        if shape is not None and not isinstance(value, shape.classes):
            raise SchemaError(pointer_to(at, keyword), f"this must be {shape.words}, not {value!r}")
    plain = {keyword: value for keyword, value in schema.items() if keyword in _KEPT}
    if "type" in plain:
        plain["type"] = [plain["type"]] if isinstance(plain["type"], str) else list(plain["type"])
        for name in plain["type"]:
            if name not in TYPES:
                raise SchemaError(pointer_to(at, "type"), f"{name!r} is no type; there are {', '.join(TYPES)}")
    if "const" in schema:
        plain["enum"] = _common_members(plain.get("enum", [schema["const"]]), [schema["const"]])
    if isinstance(plain.get("items"), list):
        plain["prefixItems"] = plain.pop("items")
        if "additionalItems" in schema:
            plain["items"] = schema["additionalItems"]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(plain.get(exclusive), bool) and plain.pop(exclusive) and bound in plain:
            plain[exclusive] = plain.pop(bound)
    if not isinstance(plain.get("required", []), list):
        del plain["required"]
    needed = {name: names for name, names in schema.get("dependencies", {}).items() if isinstance(names, list)}
    if needed:
        plain["dependentRequired"] = _joined_lists(plain.get("dependentRequired", {}), needed)
    return plain


class _Shape(NamedTuple):
    words: str
    classes: tuple[type, ...]


_SHAPES = {
    **dict.fromkeys(("$ref", "pattern", "format"), _Shape("a string", (str,))),
    **dict.fromkeys(("enum", "allOf", "anyOf", "oneOf", "prefixItems"), _Shape("a list", (list,))),
    **dict.fromkeys(
        ("properties", "patternProperties", "dependentRequired", "dependentSchemas", "dependencies"),
        _Shape("an object", (dict,)),
    ),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
         "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"),
        _Shape("a number", (int, float)),
    ),
    "type": _Shape("the name of a type or a list of names", (str, list)),
}  # fmt: skip


def _says_items(plain: Plain) -> bool:
    return "items" in plain or "prefixItems" in plain


def _by_pattern(plain: Plain, text: str) -> Schema:
    return plain.get("patternProperties", {}).get(text, plain.get("additionalProperties", True))


def _add_check(plain: Plain, schema: Schema) -> None:
    plain["allOf"] = [*plain.get("allOf", ()), schema]


def _common_types(left: list[str], right: list[str]) -> list[str]:
    def allows(names: list[str], name: str) -> bool:
        return name in names or (name == "integer" and "number" in names)

    return [name for name in TYPES if allows(left, name) and allows(right, name)]


def _common_members(left: list[Any], right: list[Any]) -> list[Any]:
    allowed = set(map(fingerprint, right))
    return [member for member in left if fingerprint(member) in allowed]


def _common_step(left: float, right: float) -> float:
    one, other = exact(left), exact(right)
    step = Fraction(lcm(one.numerator, other.numerator), gcd(one.denominator, other.denominator))
    return step.numerator if step.denominator == 1 else float(step)


def _joined(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, *(item for item in right if item not in left)]


def _joined_lists(left: dict[str, list[str]], right: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: _joined(left.get(name, []), right.get(name, [])) for name in {**left, **right}}


_MERGERS: dict[str, Callable[[Any, Any], Any]] = {
    "type": _common_types,
    "enum": _common_members,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "multipleOf": _common_step,
    "uniqueItems": lambda left, right: left or right,
    "required": _joined,
    "dependentRequired": _joined_lists,
    "not": lambda left, right: {"anyOf": [left, right]},
    "allOf": lambda left, right: [*left, *right],
}
