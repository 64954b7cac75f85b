"""Validate a document with a JSON Schema, and report the path of the first violation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from resources_servers.structured_outputs.grading.described import Described
from resources_servers.structured_outputs.grading.formats import (
    LONGEST_DOCUMENT,
    DocumentFormat,
    Unreadable,
    read_json,
    read_toml,
    read_yaml,
)
from resources_servers.structured_outputs.grading.markup import read_xml
from resources_servers.structured_outputs.grading.strictness import names_only, strict_schema
from resources_servers.structured_outputs.grading.table import read_csv

if TYPE_CHECKING:
    import jsonschema_rs

PARSE_ERROR, SCHEMA_VIOLATION, TOO_LARGE = "parse_error", "schema_violation", "too_large"
LONGEST_MESSAGE = 500
NO_ROW = "not CSV: the header has no row below it"

_PLAIN_READERS = {"json": read_json, "yaml": read_yaml, "toml": read_toml}


class Problem(NamedTuple):
    """A problem with a document, and its path in the document."""

    kind: str
    """`parse_error`, `schema_violation` or `too_large`."""
    message: str
    """At most 500 characters, usually one line. It begins with the path if `path` is not empty."""
    path: str = ""
    """The place in the document, such as `$.items[2].name`. It is empty if the text could not be parsed."""


class SchemaUnusable(ValueError):
    """An error for a text that is not a JSON Schema, or for a schema with an external reference."""


class _Instance(NamedTuple):
    path: tuple[str | int, ...]
    value: Any


def first_problem(
    text: str, format_: DocumentFormat, schema_text: str, xml_coerce_types: bool = True
) -> Problem | None:
    """Return the first problem of a document, or None if it conforms.

    `schema_text` is a JSON Schema as JSON. It is made strict: every property that it names is required, and no other
    property is allowed. A CSV document is a list of objects. If the schema describes an object, it applies to each
    row. Raises `SchemaUnusable` if the schema is invalid.
    """
    schema = _schema_of(schema_text)
    validator = _validator_of(schema)
    if len(text) > LONGEST_DOCUMENT:
        return Problem(TOO_LARGE, f"the document has {len(text)} characters; the limit is {LONGEST_DOCUMENT}")
    try:
        text.encode()
        readings = list(_readings(text, format_, schema, xml_coerce_types))
    except Unreadable as error:
        return Problem(PARSE_ERROR, str(error)[:LONGEST_MESSAGE])
    except UnicodeEncodeError:
        return Problem(PARSE_ERROR, "not Unicode: it contains a lone surrogate")
    problems = [_violation(validator, instances) for instances in readings]
    return None if None in problems else problems[0]


def _readings(text: str, format_: DocumentFormat, schema: Any, coerces: bool) -> Iterator[list[_Instance]]:
    """Yield the possible interpretations of a text. Each is a list of values that must all conform to the schema."""
    described = Described(schema, schema)
    if format_ == "xml":
        for value in read_xml(text, described, coerces_types=coerces):
            yield [_Instance((), value)]
    elif format_ == "csv" and "object" in described.types:
        rows = read_csv(text, described).rows
        if not rows:
            raise Unreadable(NO_ROW)
        yield [_Instance((number,), row) for number, row in enumerate(rows)]
    elif format_ == "csv":
        header, rows = read_csv(text, described.items)
        # Check the columns, because any single line of text would otherwise count as a valid, empty list.
        if not rows and not (described.items.properties and _allows_names(schema, header)):
            raise Unreadable(f"{NO_ROW}, and its columns do not match the schema")
        yield [_Instance((), rows)]
    else:
        yield [_Instance((), _PLAIN_READERS[format_](text))]


def _allows_names(schema: Any, header: list[str]) -> bool:
    """Return whether a list's items can have these property names. `schema` is the strict schema of the list."""
    return _violation(_validator_of(names_only(schema)), [_Instance((), [dict.fromkeys(header)])]) is None


def _schema_of(schema_text: str) -> Any:
    try:
        schema = orjson.loads(schema_text)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise SchemaUnusable(f"the schema is not JSON: {error}") from error
    # Validate the original schema first, because error messages must refer to it and not to the strict copy.
    _validator_of(schema)
    return strict_schema(schema)


def _validator_of(schema: Any) -> jsonschema_rs.Validator:
    import jsonschema_rs

    if not isinstance(schema, (dict, bool)):
        raise SchemaUnusable(f"a JSON Schema must be an object or a boolean, not of type {type(schema).__name__}")
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=True)
    except ValueError as error:
        raise SchemaUnusable(f"not a JSON Schema: {str(error).splitlines()[0]}") from error


def _refuse(uri: str) -> Any:
    raise ValueError(
        f"{uri} is outside the schema, and external references are not fetched. Copy the definition into the schema"
    )


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
    """Format a path in a JSON value, such as `$.items[2].name`."""
    steps = (
        f"[{part}]" if isinstance(part, int) else f".{part}" if part.isidentifier() else f"[{part!r}]"
        for part in parts
    )
    return "$" + "".join(steps)
