"""Samples are valid and reproducible, and a schema without instances is rejected with the reason."""

import json
import os
import subprocess
import sys
from datetime import datetime
from enum import Enum
from pathlib import Path
from random import Random
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from responses_api_models.sample_model.json_schema.references import SchemaError
from responses_api_models.sample_model.sampler import Sampler
from responses_api_models.sample_model.tests.schemas import EVERY_SCHEMA, REFERENCES, samples_of, validator_of

REPOSITORY = Path(__file__).parents[3]
SAMPLES = 200


def test_every_sample_is_valid():
    wrong = []
    for name, schema in EVERY_SCHEMA.items():
        validator = validator_of(schema)
        values = [json.loads(json.dumps(value, allow_nan=False)) for value in samples_of(schema, SAMPLES)]
        wrong += [(name, value) for value in values if not validator.is_valid(value)]
    assert wrong == []


def test_same_seed_gives_same_samples():
    wrong = [
        name
        for name, schema in EVERY_SCHEMA.items()
        if json.dumps(samples_of(schema, 20, seed=3)) != json.dumps(samples_of(schema, 20, seed=3))
    ]
    assert wrong == []


def test_samples_do_not_depend_on_process():
    program = (
        "import json, sys; from random import Random; from responses_api_models.sample_model.sampler import Sampler\n"
        "print(json.dumps([Sampler(schema).sample(Random(7)) for schema in json.load(sys.stdin)]))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(list(EVERY_SCHEMA.values())),
            capture_output=True,
            text=True,
            check=True,
            cwd=REPOSITORY,
            # The order of a set of texts depends on it; a sample must not.
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])) == len(EVERY_SCHEMA)


def test_seeds_give_different_samples():
    cases = ["any integer", "any text", "a pattern of digits", "items", "optional and required", "a tree"]
    wrong = []
    for name in cases:
        seen = {json.dumps(samples_of(EVERY_SCHEMA[name], 3, seed=seed)) for seed in range(20)}
        if (found := len(seen)) < 15:
            wrong.append((name, found))
    assert wrong == []


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(default=9, gt=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[Annotated[str, Field(min_length=3)]] = Field(min_length=1)
    friends: list["Dog"] = []


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    colour: Colour | None = None
    ordered: datetime
    number: UUID
    price: float = Field(gt=0, lt=1e6)
    place: tuple[float, float]
    tags: dict[Annotated[str, Field(pattern="^[a-z]{2,4}$")], int] = Field(default_factory=dict, max_length=3)


def test_pydantic_model_accepts_samples_of_its_schema():
    for value in samples_of(Order.model_json_schema(), SAMPLES):
        Order.model_validate_json(json.dumps(value))


def test_branches_members_and_optional_properties_all_appear():
    schema = {
        "type": "object",
        "properties": {
            "pick": {"enum": ["a", "b", "c"]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "maybe": {"type": "boolean", "default": False},
        },
        "required": ["pick", "either"],
    }
    samples = samples_of(schema, SAMPLES)
    assert {sample["pick"] for sample in samples} == {"a", "b", "c"}
    assert {type(sample["either"]) for sample in samples} == {int, type(None)}
    assert {sample.get("maybe", "absent") for sample in samples} == {True, False, "absent"}


def test_valid_defaults_and_examples_of_texts_appear():
    schema = {"type": "string", "pattern": "^[a-z ]+$", "default": "as usual", "examples": ["NOT VALID", "or not"]}
    samples = samples_of(schema, SAMPLES)
    assert 0 < samples.count("as usual") < SAMPLES / 2
    assert "or not" in samples
    assert "NOT VALID" not in samples


def test_sample_shares_no_list_with_schema():
    schema = {"enum": [[1]]}
    Sampler(schema).sample(Random(0)).append(2)
    assert schema == {"enum": [[1]]}


def test_schema_without_instances_reports_json_pointer():
    cases = [
        (False, "#"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "#"),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "#"),
        ({"type": "number", "multipleOf": 10, "minimum": 1, "maximum": 9}, "#"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "#"),
        ({"type": "string", "enum": [1, 2]}, "#"),
        ({"type": "array", "items": {"enum": [1]}, "minItems": 2, "uniqueItems": True}, "#/items"),
        ({"type": "array", "prefixItems": [True], "items": False, "minItems": 2}, "#"),
        ({"type": "object", "properties": {"a/b": {"type": "string", "pattern": "("}}, "required": ["a/b"]},
         "#/properties/a~1b/pattern"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a$", "minLength": 2}},
          "required": ["a"]}, "#/properties/a"),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, "#/properties/a"),
        ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, "#"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "#/properties/a"),
        ({"allOf": [{"type": "integer"}, {"type": "string"}]}, "#"),
        ({"allOf": [{"enum": [1]}, {"enum": [2]}]}, "#"),
        ({"type": "object", "properties": {"a": {"anyOf": []}}, "required": ["a"]}, "#/properties/a/anyOf"),
        ({"oneOf": [{"const": 1}, {"const": 1}]}, "#/oneOf"),
        ({"type": "integer", "not": {}}, "#/not"),
        ({"type": "string", "pattern": "^x{12}y$"}, "#"),
        ({"properties": {"a": {"$ref": "other.json"}}, "required": ["a"], "type": "object"}, "#"),
        ({"$ref": "#/$defs/gone"}, "#"),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}}, "#here"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "#"),
        ({"type": "objekt"}, "#/type"),
        ({"type": "object", "properties": []}, "#/properties"),
        ({"type": "object", "properties": {"a": 3}, "required": ["a"]}, "#/properties/a"),
        ({"type": "string", "minLength": 10**9}, "#"),
    ]  # fmt: skip
    wrong = []
    for schema, pointer in cases:
        try:
            wrong.append((schema, pointer, Sampler(schema).sample(Random(0))))
        except SchemaError as error:
            if error.pointer != pointer or not str(error).startswith(f"{pointer}: "):
                wrong.append((schema, pointer, error.pointer, str(error)))
    assert wrong == []


def test_endless_schema_is_rejected():
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {
        "type": "object", "required": ["left", "right"],
        "properties": {"left": {"$ref": "#/$defs/a"}, "right": {"$ref": "#/$defs/a"}}}}}  # fmt: skip
    with pytest.raises(SchemaError, match="requires endless nesting"):
        Sampler(schema).sample(Random(0))


def test_endless_optional_property_is_omitted():
    endless = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/endless"}}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "$defs": {"endless": endless}}
    assert samples_of(schema, 20) == [{}] * 20


def test_recursive_schema_gives_small_samples():
    sizes = [len(json.dumps(value)) for value in samples_of(REFERENCES["a tree"], SAMPLES)]
    assert max(sizes) < 20_000
    assert sum(sizes) / len(sizes) < 2_000
