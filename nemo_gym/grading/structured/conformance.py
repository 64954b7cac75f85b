"""Hold a document against a JSON Schema, and name the first place at which it does not conform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from nemo_gym.grading.structured.described import Described
from nemo_gym.grading.structured.formats import (
    LONGEST_DOCUMENT,
    DocumentFormat,
    Unreadable,
    read_json,
    read_toml,
    read_yaml,
)
from nemo_gym.grading.structured.markup import read_xml
from nemo_gym.grading.structured.strictness import strict_schema
from nemo_gym.grading.structured.table import read_csv

if TYPE_CHECKING:
    import jsonschema_rs

PARSE_ERROR, SCHEMA_VIOLATION, TOO_LARGE = "parse_error", "schema_violation", "too_large"
LONGEST_MESSAGE = 500

_PLAIN_READERS = {"json": read_json, "yaml": read_yaml, "toml": read_toml}


class Problem(NamedTuple):
    """What is wrong with a document: `parse_error`, `schema_violation` or `too_large`, and where."""

    kind: str
    message: str
    """One line of at most 500 characters, which begins with the path where there is one."""
    path: str = ""
    """Where in the document, as `$.items[2].name`; empty for a text that could not be read."""


class SchemaUnusable(ValueError):
    """A text is no JSON Schema, or one that refers to what is not in it."""


class _Instance(NamedTuple):
    path: tuple[str | int, ...]
    value: Any


def first_problem(
    text: str, format_: DocumentFormat, schema_text: str, xml_coerce_types: bool = True
) -> Problem | None:
    """The first thing that is wrong with a document; None where it conforms.

    `schema_text` is a JSON Schema as JSON. It is made strict: every property that it names is required, and no other
    is allowed. CSV is a list of objects; a schema of one object speaks for every row. Raises `SchemaUnusable`, and
    `ImportError` where the `schema` extra is not installed.
    """
    schema = _schema_of(schema_text)
    validator = _validator_of(schema)
    if len(text) > LONGEST_DOCUMENT:
        return Problem(TOO_LARGE, f"{len(text)} characters; a document has {LONGEST_DOCUMENT} at most")
    try:
        text.encode()
        readings = list(_readings(text, format_, schema, xml_coerce_types))
    except Unreadable as error:
        return Problem(PARSE_ERROR, str(error)[:LONGEST_MESSAGE])
    except UnicodeEncodeError:
        return Problem(PARSE_ERROR, "not Unicode: half of a surrogate pair stands alone")
    problems = [_violation(validator, instances) for instances in readings]
    return None if None in problems else problems[0]


def _readings(text: str, format_: DocumentFormat, schema: Any, coerces: bool) -> Iterator[list[_Instance]]:
    """Each way to read a text, as the values that have to conform."""
    described = Described(schema, schema)
    if format_ == "xml":
        for value in read_xml(text, described, coerces_types=coerces):
            yield [_Instance((), value)]
    elif format_ == "csv" and "object" in described.types:
        rows = read_csv(text, described)
        if not rows:
            raise Unreadable("not CSV: there is no row under the header")
        yield [_Instance((number,), row) for number, row in enumerate(rows)]
    elif format_ == "csv":
        yield [_Instance((), read_csv(text, described.items))]
    else:
        yield [_Instance((), _PLAIN_READERS[format_](text))]


def _schema_of(schema_text: str) -> Any:
    try:
        schema = orjson.loads(schema_text)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise SchemaUnusable(f"the schema is not JSON: {error}") from error
    # Only what is a schema can be made strict, and a mistake in it is told as it was written.
    _validator_of(schema)
    return strict_schema(schema)


def _validator_of(schema: Any) -> jsonschema_rs.Validator:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise ImportError(
            "a JSON Schema is checked by jsonschema-rs, which is not installed: pip install 'nemo-gym[schema]'"
        ) from error
    if not isinstance(schema, (dict, bool)):
        raise SchemaUnusable(f"a JSON Schema is an object, and not a {type(schema).__name__}")
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except ValueError as error:
        raise SchemaUnusable(f"not a JSON Schema: {str(error).splitlines()[0]}") from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} lies outside of the schema, and nothing is fetched")


def _violation(validator: jsonschema_rs.Validator, instances: Sequence[_Instance]) -> Problem | None:
    import jsonschema_rs

    for instance in instances:
        try:
            validator.validate(instance.value)
        except jsonschema_rs.ValidationError as error:
            path = json_path([*instance.path, *error.instance_path])
            return Problem(SCHEMA_VIOLATION, f"{path}: {error.message}"[:LONGEST_MESSAGE], path)
    return None


def json_path(parts: Sequence[str | int]) -> str:
    """A place in a JSON value, as `$.items[2].name`."""
    steps = (
        f"[{part}]" if isinstance(part, int) else f".{part}" if part.isidentifier() else f"[{part!r}]"
        for part in parts
    )
    return "$" + "".join(steps)
