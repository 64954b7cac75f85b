"""How deep the shallowest instance of a schema nests: the way out of a recursive schema."""

from __future__ import annotations

from math import inf
from typing import Any

from responses_api_models.sample_model.json_schema.references import Schema, resolve


class Heights:
    """Measures the parts of one schema: 0 for a number or a text, 1 for `{}`, `inf` where nesting never ends.

    A lower bound, good for choosing between branches: it looks at each keyword by itself.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._of_reference: dict[str, float] = {}

    def of(self, schema: Schema) -> float:
        """The nesting of the shallowest instance."""
        # References may be circular: take all as endless, then lower them for as long as that changes anything.
        while True:
            before = dict(self._of_reference)
            height = self._measured(schema)
            for reference in before:
                self._of_reference[reference] = self._measured(resolve(self._root, reference))
            if self._of_reference == before:
                return height

    def _measured(self, schema: Schema) -> float:
        if schema is False:
            return inf
        if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
            return 0
        heights = [self._of_kinds(schema)]
        if "$ref" in schema:
            heights.append(self._of_reference.setdefault(schema["$ref"], inf))
        heights.extend(self._measured(part) for part in schema.get("allOf", ()))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                heights.append(min((self._measured(part) for part in schema[keyword]), default=inf))
        return max(heights)

    def _of_kinds(self, schema: dict[str, Any]) -> float:
        kinds = schema.get("type", "object" if "required" in schema else ())
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return min((self._of_kind(kind, schema) for kind in kinds), default=0)

    def _of_kind(self, kind: str, schema: dict[str, Any]) -> float:
        if kind == "object":
            properties = schema.get("properties", {})
            needed = [properties.get(name, True) for name in schema.get("required", ())]
        elif kind == "array":
            needed = [schema.get("items", True)] if schema.get("minItems") and "prefixItems" not in schema else []
        else:
            return 0
        return 1 + max(map(self._measured, needed), default=0)
