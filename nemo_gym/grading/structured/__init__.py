"""Whether a document in JSON, YAML, XML, TOML or CSV conforms to a JSON Schema, and where it first does not.

Schemas are checked by jsonschema-rs (the `schema` extra), which is imported with the first document. What is read is
bounded in size and depth, and no format can make it look anything up. A text of hostile make may still take seconds
to read: give long ones to a `WorkerPool`, for which `first_problem` is made.
"""

from nemo_gym.grading.structured.conformance import (
    PARSE_ERROR,
    SCHEMA_VIOLATION,
    TOO_LARGE,
    Problem,
    SchemaUnusable,
    first_problem,
)
from nemo_gym.grading.structured.formats import DEEPEST, LONGEST_DOCUMENT, MOST_VALUES, DocumentFormat, Unreadable
from nemo_gym.grading.structured.strictness import strict_schema

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
    "first_problem",
    "strict_schema",
]
