"""Random valid instances of a JSON Schema, reproducible from the state of a random number generator.

Common keywords are satisfied by construction, all others by rejection sampling.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from random import Random

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.merging import branch, flattened, height
from responses_api_models.sample_model.json_schema.numbers import sample_number
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to
from responses_api_models.sample_model.json_schema.texts import WORDS, sample_text
from responses_api_models.sample_model.json_schema.validity import Validator, meets_own_keywords

TRIES = 100
"""Maximum number of attempts to draw a valid sample, or an array item that differs from the others."""
NESTING = 4
"""The depth beyond which only required values are generated, and unions try their shallowest branch first."""
MANY_VALUES = 200
"""The number of values beyond which only required values are generated, regardless of their depth."""
MOST_VALUES = 20_000
DEEPEST = 40
OPTIONAL_SHARE = 0.6
"""The probability of an optional property at the top level. It decreases with depth."""
MORE_PROPERTIES = 2
MORE_ITEMS = 3
"""Maximum number of items beyond `minItems` and `prefixItems` at the top level. It decreases with depth."""

_HINTS = {
    "object": ("properties", "required", "additionalProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The keywords that imply each type, for schemas without `type`."""


class Sampler:
    """A generator of samples of one schema. References may be recursive, but must stay within the schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._validator = Validator(schema)

    def sample(self, rng: Random) -> object:
        """Return a valid instance. If none is found, raise `SchemaError`, which names the part at fault."""
        try:
            for _ in range(TRIES):
                value = _Draw(self.schema, rng).value(self.schema, "#", 0)
                if self._validator.is_valid(value):
                    return value
        except RecursionError as error:
            raise SchemaError("#", "the schema requires endless nesting") from error
        problem = self._validator.problem(value)
        assert problem is not None  # `is_valid` has rejected the value
        reason = f"no valid instance was found in {TRIES} tries; problem of the last try: {problem.message:.200}"
        raise SchemaError(problem.pointer, reason)


class _Draw:
    """The state of drawing one sample."""

    def __init__(self, root: Schema, rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._values = 0

    def value(self, schema: Schema, at: str, depth: float) -> object:
        """Return a value for the schema at the JSON pointer `at`."""
        if isinstance(schema, dict) and "$ref" in schema:
            at = schema["$ref"]
        if depth > DEEPEST or (self._is_tight(depth) and height(self._root, schema) > DEEPEST):
            raise SchemaError(at, "the schema requires endless nesting")
        return self._of_flat(flattened(self._root, schema, at), at, depth)

    def _is_tight(self, depth: float) -> bool:
        return depth > NESTING or self._values > MANY_VALUES

    def _of_flat(self, flat: JsonObject, at: str, depth: float) -> object:
        self._values += 1
        if self._values > MOST_VALUES:
            raise SchemaError(at, f"the generated instance has more than {MOST_VALUES} values")
        if "enum" in flat:
            members = [member for member in flat["enum"] if meets_own_keywords(member, flat)]
            if not members:
                raise SchemaError(at, "no member of the enum meets the other keywords")
            return copy.deepcopy(self._rng.choice(members))
        for keyword in ("anyOf", "oneOf"):
            if keyword in flat:
                return self._of_branch(flat, keyword, at, depth)
        match self._type(flat, depth):
            case "object":
                return self._object(flat, at, depth)
            case "array":
                return self._array(flat, at, depth)
            case "string":
                return sample_text(flat, self._rng, at)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case kind:
                return sample_number(flat, self._rng, at, is_integer=kind == "integer")

    def _of_branch(self, flat: JsonObject, keyword: str, at: str, depth: float) -> object:
        order = self._rng.sample(range(len(flat[keyword])), len(flat[keyword]))
        if self._is_tight(depth):
            order.sort(key=lambda index: height(self._root, flat[keyword][index]))
        reason = "it has none"
        for index in order:
            try:
                narrowed = branch(self._root, flat, keyword, index, at)
                # Add a little depth per branch, so that a union that contains itself reaches the depth limit.
                return self._of_flat(narrowed, pointer_to(at, keyword, index), depth + 0.25)
            except SchemaError as error:
                reason = str(error)
        raise SchemaError(at, f"no branch of {keyword} has a valid instance: {reason}")

    def _type(self, flat: JsonObject, depth: float) -> str:
        names: str | list[str] = flat.get("type") or [
            name for name, keywords in _HINTS.items() if any(keyword in flat for keyword in keywords)
        ]
        if isinstance(names, str):
            return names
        names = names or ["string", "integer", "boolean"]
        flatter = [name for name in names if name not in {"object", "array"}]
        return self._rng.choice(flatter if flatter and self._is_tight(depth) else names)

    def _array(self, flat: JsonObject, at: str, depth: float) -> list[object]:
        heads, rest = flat.get("prefixItems", []), flat.get("items", True)
        if isinstance(rest, list):
            # Before draft 2020-12, `items` was the list of a tuple's schemas, followed by `additionalItems`.
            heads, rest = rest, flat.get("additionalItems", True)
        fewest = int(flat.get("minItems", 0))
        most = min(int(flat.get("maxItems", MOST_VALUES)), len(heads) if rest is False else MOST_VALUES)
        if fewest > most:
            raise SchemaError(at, f"an array needs {fewest} items, but may have at most {most}")
        size = fewest
        if not self._is_tight(depth):
            usual = min(most, max(fewest, len(heads)))
            size = self._rng.randint(usual, min(most, usual + max(0, MORE_ITEMS - int(depth))))
        items: list[object] = []
        for index in range(size):
            place = pointer_to(at, "prefixItems", index) if index < len(heads) else pointer_to(at, "items")
            try:
                others = items if flat.get("uniqueItems") else []
                items.append(self._item(heads[index] if index < len(heads) else rest, place, depth, others))
            except SchemaError:
                if len(items) < fewest:
                    raise
                break
        return items

    def _item(self, schema: Schema, at: str, depth: float, others: list[object]) -> object:
        for _ in range(TRIES):
            item = self.value(schema, at, depth + 1)
            if item not in others:
                return item
        raise SchemaError(at, "uniqueItems: too few different items were found; lower minItems")

    def _object(self, flat: JsonObject, at: str, depth: float) -> JsonObject:
        properties, rest = flat.get("properties", {}), flat.get("additionalProperties", True)
        required = flat.get("required", [])
        fewest, most = int(flat.get("minProperties", 0)), int(flat.get("maxProperties", MOST_VALUES))
        if max(fewest, len(required)) > most:
            raise SchemaError(
                at, f"an object needs {max(fewest, len(required))} properties, but may have at most {most}"
            )
        made = {
            name: self.value(properties.get(name, rest), pointer_to(at, "properties", name), depth + 1)
            for name in required
        }
        tight = self._is_tight(depth)
        share = 0.0 if tight else OPTIONAL_SHARE / (1 + depth)
        optional = [name for name in properties if name not in made]
        for name in self._rng.sample(optional, len(optional)):
            if len(made) < most and (self._rng.random() < share or len(made) < fewest):
                self._try_to_add(made, name, properties[name], pointer_to(at, "properties", name), depth)
        more = 0 if tight or not isinstance(rest, dict) or not rest else self._rng.randint(0, MORE_PROPERTIES)
        enough = min(most, max(fewest, len(made) + more))
        for _ in range(TRIES if rest is not False else 0):
            if len(made) >= enough:
                break
            name = self._new_name(flat, at, depth)
            if name not in properties:
                self._try_to_add(made, name, rest, pointer_to(at, "additionalProperties"), depth)
        if len(made) < fewest:
            raise SchemaError(at, f"an object needs {fewest} properties, but only {len(made)} were generated")
        return {name: made[name] for name in dict.fromkeys([*properties, *made]) if name in made}

    def _try_to_add(self, made: JsonObject, name: str, schema: Schema, at: str, depth: float) -> None:
        """Add an optional property, if a value for it is found."""
        with suppress(SchemaError):
            made[name] = self.value(schema, at, depth + 1)

    def _new_name(self, flat: JsonObject, at: str, depth: float) -> str:
        if "propertyNames" in flat:
            names = {"allOf": [{"type": "string"}, flat["propertyNames"]]}
            return str(self.value(names, pointer_to(at, "propertyNames"), depth + 1))
        return f"{self._rng.choice(WORDS)}_{self._rng.randint(1, 99)}"
