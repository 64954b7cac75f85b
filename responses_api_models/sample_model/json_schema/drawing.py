"""What the makers of arrays and objects are handed while a sample is drawn."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from responses_api_models.sample_model.json_schema.merging import Flattener, Plain
from responses_api_models.sample_model.json_schema.references import Schema

TRIES = 60
"""A value that fails a check which cannot be steered for, such as `not`, is drawn at most this often."""
MOST_VALUES = 20_000
"""No sample is made of more values than this."""


class Drawing(Protocol):
    """One sample being drawn: its generator, and the way to the values inside."""

    rng: Random
    flattener: Flattener

    def value(self, schema: Schema, at: str, depth: float) -> Any:
        """A value that the schema allows; `at` is the schema's JSON pointer, `depth` how many values it lies in."""

    def members(self, plain: Plain) -> list[Any]:
        """The members of the `enum` that meet the other keywords."""

    def is_tight(self, depth: float) -> bool:
        """Whether no more may be made here than is required."""

    def is_valid(self, value: Any, schema: Schema) -> bool:
        """Whether the value is an instance of the schema."""
