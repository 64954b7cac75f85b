"""Validate a whole sample or a single value against a JSON Schema."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple, NoReturn

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to

_OWN_KEYWORDS = frozenset({
    "type", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "format",
})  # fmt: skip
"""Keywords that constrain a value itself, not its members, and mean the same in each draft."""


class Problem(NamedTuple):
    """A violation: the JSON pointer to the violated keyword, and the reason."""

    pointer: str
    message: str


class Validator:
    """A compiled validator for one schema. It checks `format` keywords, too."""

    def __init__(self, schema: Schema) -> None:
        """Compile the schema. Raise `SchemaError` if it is invalid."""
        # Import the library only here, because the import takes 20 ms and only requests with a schema need it.
        import jsonschema_rs

        try:
            self._validator = jsonschema_rs.validator_for(schema, validate_formats=True, retriever=_refuse)
        except jsonschema_rs.ValidationError as error:
            raise SchemaError(pointer_to("#", *error.instance_path), f"not a JSON Schema: {error.message}") from error
        except ValueError as error:
            raise SchemaError("#", f"not a JSON Schema: {error}") from error

    def is_valid(self, value: object) -> bool:
        return self._validator.is_valid(value)

    def problem(self, value: object) -> Problem | None:
        """Return the first violation, or None if the value is valid."""
        errors = self._validator.iter_errors(value)
        return next((Problem(pointer_to("#", *error.schema_path), error.message) for error in errors), None)


def meets_own_keywords(value: object, schema: JsonObject) -> bool:
    """Return whether a value meets the type, range, length, pattern and format keywords of a schema."""
    return _validator_of_text(json.dumps({key: schema[key] for key in schema if key in _OWN_KEYWORDS})).is_valid(value)


@lru_cache(maxsize=512)
def _validator_of_text(schema: str) -> Validator:
    return Validator(json.loads(schema))


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema and is not fetched. Copy the definition into the schema")
