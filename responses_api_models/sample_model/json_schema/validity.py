"""Validation by jsonschema-rs, of a whole sample or of a single value."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to

if TYPE_CHECKING:
    import jsonschema_rs

_OWN_KEYWORDS = frozenset({
    "type", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "format",
})  # fmt: skip
"""Keywords that apply to a value without a look into it, in the same way in each draft."""


def validator_of(schema: Schema) -> jsonschema_rs.Validator:
    """Return a validator that checks formats. Raise `SchemaError` if the schema itself is invalid."""
    try:
        import jsonschema_rs
    except ImportError as error:
        reason = "it is checked by jsonschema-rs, which is not installed: pip install 'nemo-gym[schema]'"
        raise SchemaError("#", reason) from error
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, retriever=_refuse)
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(pointer_to("#", *error.instance_path), f"not a JSON Schema: {error.message}") from error
    except ValueError as error:
        raise SchemaError("#", f"not a JSON Schema: {error}") from error


def meets_own_keywords(value: object, schema: JsonObject) -> bool:
    """Return whether a value meets the type, the range, the lengths, the pattern and the format."""
    return _validator_of_text(json.dumps({key: schema[key] for key in schema if key in _OWN_KEYWORDS})).is_valid(value)


@lru_cache(maxsize=512)
def _validator_of_text(schema: str) -> jsonschema_rs.Validator:
    return validator_of(json.loads(schema))


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside of the schema and is not fetched")
