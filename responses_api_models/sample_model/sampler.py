"""Random valid instances of a JSON Schema, the same ones for the same generator."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from responses_api_models.sample_model.json_schema.arrays import sample_array
from responses_api_models.sample_model.json_schema.drawing import MOST_VALUES, TRIES
from responses_api_models.sample_model.json_schema.heights import Heights
from responses_api_models.sample_model.json_schema.merging import TYPES, Flattener, Plain
from responses_api_models.sample_model.json_schema.numbers import sample_integer, sample_number
from responses_api_models.sample_model.json_schema.objects import sample_object
from responses_api_models.sample_model.json_schema.patterns import PatternError
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to
from responses_api_models.sample_model.json_schema.texts import sample_text
from responses_api_models.sample_model.json_schema.validity import is_valid

NESTING = 4
"""Beyond this depth only what is required is made, along the shallowest branches."""
MANY_VALUES = 200
"""Beyond this many values in one sample, too."""
DEEPEST = 40
BRANCH_TRIES = 20
"""How often a branch of a `oneOf` is drawn from before another has its turn."""
CANDIDATE_SHARE = 0.25
"""How often a valid `default` or one of the `examples` is taken where there is one."""

_HINTS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class Sampler:
    """Samples one schema; what it learns of the schema on the way makes the next sample faster.

    References may be recursive, but lead nowhere outside of the schema. Values keep to the drafts 4 to 2020-12.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.flattener = Flattener(schema)
        self.heights = Heights(schema)

    def sample(self, rng: Random) -> Any:
        """One valid instance, made of what `json` writes; the same for a generator in the same state.

        `SchemaError` where there is none, or none was found; it names the part of the schema.
        """
        try:
            for _ in range(TRIES):
                value = _Draw(self, rng).value(self.schema, "#", 0)
                if is_valid(value, self.schema, self.schema):
                    return value
        except PatternError as error:
            raise SchemaError("#", str(error)) from error
        except RecursionError as error:
            raise SchemaError("#", "it nests without an end") from error
        raise SchemaError("#", f"no valid instance was found in {TRIES} tries; its parts may contradict each other")


class _Draw:
    """The drawing of one sample."""

    def __init__(self, sampler: Sampler, rng: Random) -> None:
        self._sampler = sampler
        self.flattener = sampler.flattener
        self.rng = rng
        self._values = 0

    def value(self, schema: Schema, at: str, depth: float) -> Any:
        """A value that the schema allows; `at` is its JSON pointer."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            at = schema["$ref"]
        return self._of_plain(self.flattener.plain(schema, at), at, depth)

    def is_tight(self, depth: float) -> bool:
        return depth > NESTING or self._values > MANY_VALUES

    def is_valid(self, value: Any, schema: Schema) -> bool:
        return is_valid(value, schema, self._sampler.schema)

    def _of_plain(self, plain: Plain, at: str, depth: float) -> Any:
        self._values += 1
        if depth > DEEPEST:
            raise SchemaError(at, "it nests without an end")
        if self._values > MOST_VALUES:
            raise SchemaError(at, f"its instances hold more than {MOST_VALUES} values")
        candidates = _candidates(plain)
        if candidates and self.rng.random() < CANDIDATE_SHARE:
            candidate = self.rng.choice(candidates)
            if self.is_valid(candidate, plain):
                return copy.deepcopy(candidate)
        if "enum" in plain:
            return self._member(plain, at)
        for keyword in ("anyOf", "oneOf"):
            if keyword in plain:
                return self._of_branch(plain, keyword, at, depth)
        checks = {keyword: plain[keyword] for keyword in ("not", "allOf") if keyword in plain}
        for _ in range(TRIES if checks else 1):
            value = self._of_type(plain, at, depth)
            if not checks or self.is_valid(value, checks):
                return value
        raise SchemaError(at, f"no value was found that its {' and '.join(checks)} lets pass")

    def members(self, plain: Plain) -> list[Any]:
        others = {keyword: value for keyword, value in plain.items() if keyword not in {"enum", "format"}}
        return [member for member in plain["enum"] if self.is_valid(member, others)]

    def _member(self, plain: Plain, at: str) -> Any:
        members = self.members(plain)
        if not members:
            raise SchemaError(at, "no member of its enum meets its other keywords")
        return copy.deepcopy(self.rng.choice(members))

    def _of_branch(self, plain: Plain, keyword: str, at: str, depth: float) -> Any:
        parts = plain[keyword]
        order = self.rng.sample(range(len(parts)), len(parts))
        if self.is_tight(depth):
            order.sort(key=lambda index: self._sampler.heights.of(parts[index]))
        reason = "it has none"
        for index in order:
            try:
                narrowed = self.flattener.branch(plain, keyword, index, at)
                for _ in range(BRANCH_TRIES if keyword == "oneOf" else 1):
                    # A branch costs a little depth, so that a schema which only refers to itself comes to an end.
                    value = self._of_plain(narrowed, pointer_to(at, keyword, index), depth + 0.25)
                    if keyword == "anyOf" or self.is_valid(value, {keyword: parts}):
                        return value
                reason = "what one branch allows, another allows too"
            except SchemaError as error:
                reason = str(error)
        raise SchemaError(at, f"no branch of its {keyword} can be met: {reason}")

    def _of_type(self, plain: Plain, at: str, depth: float) -> Any:
        last_error = SchemaError(at, "it allows no type")
        for name in self._types(plain, depth):
            try:
                return _MAKERS[name](self, plain, at, depth)
            except SchemaError as error:
                last_error = error
        raise last_error

    def _types(self, plain: Plain, depth: float) -> list[str]:
        """The types to try, in order."""
        if "type" not in plain:
            hinted = [name for name, words in _HINTS.items() if any(word in plain for word in words)]
            first = hinted or ["string", "integer", "boolean"]
            rest = [name for name in TYPES if name not in first]
            return self.rng.sample(first, len(first)) + self.rng.sample(rest, len(rest))
        names: list[str] = plain["type"]
        if len(names) == 1:
            return names
        order = self.rng.sample(names, len(names))
        return sorted(order, key=lambda name: name in {"object", "array"}) if self.is_tight(depth) else order


def _candidates(plain: Plain) -> list[Any]:
    """The values that the schema's author gave, not checked."""
    if "unevaluatedProperties" in plain or "unevaluatedItems" in plain:
        # Whether they are valid is more than our own check can tell.
        return []
    examples = plain.get("examples")
    given = list(examples) if isinstance(examples, list) else []
    return [plain["default"], *given] if "default" in plain else given


_MAKERS: dict[str, Callable[[_Draw, Plain, str, float], Any]] = {
    "string": lambda draw, plain, at, depth: sample_text(plain, draw.rng, at),
    "integer": lambda draw, plain, at, depth: sample_integer(plain, draw.rng, at),
    "number": lambda draw, plain, at, depth: sample_number(plain, draw.rng, at),
    "boolean": lambda draw, plain, at, depth: draw.rng.random() < 0.5,
    "null": lambda draw, plain, at, depth: None,
    "array": sample_array,
    "object": sample_object,
}
