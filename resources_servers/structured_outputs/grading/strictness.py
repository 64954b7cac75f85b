"""Make a JSON Schema strict: every property that it names is required, and other properties are forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resources_servers.structured_outputs.grading.references import referenced

_OF_SCHEMAS = ("items", "additionalItems", "additionalProperties", "unevaluatedItems", "contains", "propertyNames")
_OF_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions")
_OF_ONE_OBJECT = ("allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas")
"""Keywords, apart from `$ref`, whose subschemas describe the same object as the schema that contains the keyword."""

_OF_THE_ORIGINAL = ("$schema", "$id", "$anchor", "$defs", "definitions")
"""Keywords for identifiers and definitions, which the copy of a referenced subschema must not repeat."""

_OF_NAMES = (
    *("$schema", "$id", "$anchor", "$ref", "$dynamicRef", "$recursiveRef"),
    *("type", "required", "propertyNames", "minProperties", "maxProperties"),
)
"""JSON Schema keywords whose meaning does not depend on the values of an object's properties."""

_OLD_DRAFTS = ("draft-04", "draft-06", "draft-07")
_FIRST_THAT_CLOSES_A_WHOLE = "https://json-schema.org/draft/2019-09/schema"


def strict_schema(schema: Any) -> Any:
    """Return a strict copy of a schema.

    If the schema does not name an object's properties, the object may still have any properties.

    Several parts may name properties of one object, for example `allOf`, or a reference next to `properties`. Then
    other properties are forbidden for the whole object, because each part alone would reject the properties of the
    others. Schemas under `not` and `if` are unchanged, because they are conditions and not descriptions.
    """
    return _Strictness(schema).whole()


def names_only(schema: Any) -> Any:
    """Return a copy of a strict schema. The copy checks only property names, and allows any values."""
    if isinstance(schema, list):
        return [names_only(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: schema[name] for name in _OF_NAMES if name in schema}
    for name in ("additionalProperties", "unevaluatedProperties"):
        if name in schema:
            kept[name] = schema[name] is not False
    kept |= {name: dict.fromkeys(_mapping(schema, name), True) for name in ("properties", "patternProperties")}
    for name in ("$defs", "definitions", "dependentSchemas"):
        kept[name] = {key: names_only(each) for key, each in _mapping(schema, name).items()}
    if "items" in schema:
        kept["items"] = names_only(schema["items"])
    # Allow the property names of all alternatives, because the values of properties decide which alternative applies.
    alternatives = [schema[name] for name in ("anyOf", "oneOf") if name in schema]
    if "then" in schema or "else" in schema:
        alternatives.append([schema.get("then", True), schema.get("else", True)])
    parts = [*names_only(schema.get("allOf", [])), *({"anyOf": names_only(each)} for each in alternatives)]
    return kept | ({"allOf": parts} if parts else {})


class _Strictness:
    """The conversion of one schema to a strict schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._needs_newer_draft = False
        self._open_copies: dict[str, str] = {}
        """The names of copies under `$defs` that allow other properties, by the reference to the copied subschema."""

    def whole(self) -> Any:
        strict = self._strict(self._root, is_closed=True)
        if not isinstance(strict, dict):
            return strict
        copies: dict[str, Any] = {}
        while len(copies) < len(self._open_copies):
            reference, name = list(self._open_copies.items())[len(copies)]
            copies[name] = self._open_copy(referenced(self._root, reference))
        if copies:
            strict["$defs"] = {**_mapping(strict, "$defs"), **copies}
        if self._needs_newer_draft and any(draft in str(strict.get("$schema")) for draft in _OLD_DRAFTS):
            strict["$schema"] = _FIRST_THAT_CLOSES_A_WHOLE
        return strict

    def _open_copy(self, part: Any) -> Any:
        copy = self._strict(part, is_closed=False)
        if not isinstance(copy, dict):
            return copy
        return {key: each for key, each in copy.items() if key not in _OF_THE_ORIGINAL}

    def _strict(self, schema: Any, *, is_closed: bool) -> Any:
        if not isinstance(schema, dict):
            # Convert lists, too, because `items` can be a list of schemas in older drafts.
            return [self._strict(each, is_closed=True) for each in schema] if isinstance(schema, list) else schema
        is_named = isinstance(schema.get("properties"), dict)
        is_of_parts = len(self._naming(schema)) > 1
        parts_closed = is_closed and not is_of_parts
        strict = {name: self._strict_part(name, part, is_closed=parts_closed) for name, part in schema.items()}
        self._rewrite_limits(strict)
        if is_named:
            strict["required"] = list(schema["properties"])
        if is_named or is_of_parts:
            strict.pop("additionalProperties", None)
        if is_closed and is_of_parts:
            strict["unevaluatedProperties"] = False
            self._needs_newer_draft = True
        elif is_closed and is_named:
            strict["additionalProperties"] = False
        return strict

    def _rewrite_limits(self, strict: dict[str, Any]) -> None:
        """Convert the boolean `exclusiveMinimum` and `exclusiveMaximum` of draft 4 to the numbers of newer drafts."""
        for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(strict.get(exclusive), bool):
                self._needs_newer_draft = True
                if strict.pop(exclusive) and limit in strict:
                    strict[exclusive] = strict.pop(limit)

    def _strict_part(self, name: str, part: Any, *, is_closed: bool) -> Any:
        if name in _OF_SCHEMAS:
            return self._strict(part, is_closed=True)
        if name in _OF_MAPPINGS and isinstance(part, dict):
            return {key: self._strict(each, is_closed=True) for key, each in part.items()}
        if name == "prefixItems":
            return self._strict(part, is_closed=True)
        if name == "$ref" and not is_closed and referenced(self._root, part) is not None:
            return f"#/$defs/{self._open_copies.setdefault(part, self._new_name())}"
        if name == "dependentSchemas" and isinstance(part, dict):
            return {key: self._strict(each, is_closed=is_closed) for key, each in part.items()}
        if name in _OF_ONE_OBJECT and isinstance(part, list):
            return [self._strict(each, is_closed=is_closed) for each in part]
        return self._strict(part, is_closed=is_closed) if name in _OF_ONE_OBJECT else part

    def _new_name(self) -> str:
        taken = _mapping(self._root, "$defs")
        name = f"part_{len(self._open_copies) + 1}"
        while name in taken:
            name += "_"
        return name

    def _naming(self, schema: dict[str, Any]) -> list[str]:
        """Return the keywords under which a schema names its object's properties.

        Include `allOf` once for each of its parts that names properties.
        """
        found = ["properties"] if isinstance(schema.get("properties"), dict) else []
        for name, parts in self._parts_of(schema):
            found += [name] * any(map(self._names_any, parts))
        return found

    def _names_any(self, schema: Any) -> bool:
        """Return whether a schema names properties of its object, directly or in nested parts."""
        waiting, seen = [schema], set()
        while waiting:
            part = waiting.pop()
            if not isinstance(part, dict) or id(part) in seen:
                continue
            if isinstance(part.get("properties"), dict):
                return True
            seen.add(id(part))
            waiting += [each for _, parts in self._parts_of(part) for each in parts]
        return False

    def _parts_of(self, schema: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
        """Yield pairs of a keyword and a list of subschemas that describe the same object as the schema.

        Each part of `allOf` has its own pair. Alternatives, such as those of `anyOf`, share one pair.
        """
        if "$ref" in schema:
            yield "$ref", [referenced(self._root, schema["$ref"])]
        yield from (("allOf", [part]) for part in schema.get("allOf", []))
        yield from ((name, schema[name]) for name in ("anyOf", "oneOf") if name in schema)
        yield "if", [schema.get("then"), schema.get("else")]
        yield "dependentSchemas", list(_mapping(schema, "dependentSchemas").values())


def _mapping(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the mapping under a keyword, or an empty one for other values, which older drafts allow."""
    found = schema.get(name)
    return found if isinstance(found, dict) else {}
