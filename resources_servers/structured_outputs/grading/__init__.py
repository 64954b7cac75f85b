"""Validate a document in JSON, YAML, XML, TOML or CSV with a JSON Schema, and report the first problem.

jsonschema-rs does the validation. Documents are limited in size and depth, and no format can load external data. An
adversarial text can still take seconds to parse, so run `first_problem` for long texts in a `WorkerPool`.
"""

from resources_servers.structured_outputs.grading.conformance import (
    PARSE_ERROR,
    SCHEMA_VIOLATION,
    TOO_LARGE,
    Problem,
    SchemaUnusable,
    first_problem,
)
from resources_servers.structured_outputs.grading.formats import (
    DEEPEST,
    LONGEST_DOCUMENT,
    MOST_VALUES,
    DocumentFormat,
    Unreadable,
    check_keys,
)
from resources_servers.structured_outputs.grading.strictness import strict_schema

__all__ = [
    "DEEPEST",
    "LONGEST_DOCUMENT",
    "MOST_VALUES",
    "PARSE_ERROR",
    "SCHEMA_VIOLATION",
    "TOO_LARGE",
    "DocumentFormat",
    "Problem",
    "SchemaUnusable",
    "Unreadable",
    "check_keys",
    "first_problem",
    "strict_schema",
]
