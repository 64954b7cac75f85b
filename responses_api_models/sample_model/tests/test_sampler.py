"""Everything sampled is valid, the same seed samples the same, and what has no instance says so."""

import json
import os
import subprocess
import sys
import time
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
from responses_api_models.sample_model.tests.schemas import EVERY_SCHEMA, OBJECTS, REFERENCES, samples_of, validator_of

REPOSITORY = Path(__file__).parents[3]
SAMPLES = 200


@pytest.mark.parametrize("schema", EVERY_SCHEMA.values(), ids=EVERY_SCHEMA.keys())
def test_every_sample_is_valid(schema):
    validator = validator_of(schema)
    for value in samples_of(schema, SAMPLES):
        assert validator.is_valid(json.loads(json.dumps(value, allow_nan=False))), value


@pytest.mark.parametrize("schema", EVERY_SCHEMA.values(), ids=EVERY_SCHEMA.keys())
def test_the_same_seed_gives_the_same_samples(schema):
    assert json.dumps(samples_of(schema, 20, seed=3)) == json.dumps(samples_of(schema, 20, seed=3))


def test_another_process_samples_the_same():
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
            # Python orders sets of texts by it; nothing sampled may depend on that.
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])) == len(EVERY_SCHEMA)


@pytest.mark.parametrize("name", ["any integer", "any text", "a plate", "items", "optional and required", "a tree"])
def test_seeds_give_different_samples(name):
    seen = {json.dumps(samples_of(EVERY_SCHEMA[name], 3, seed=seed)) for seed in range(20)}
    assert len(seen) >= 15


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


def test_samples_of_a_pydantic_models_schema_are_read_by_the_model():
    for value in samples_of(Order.model_json_schema(), SAMPLES):
        Order.model_validate_json(json.dumps(value))


def test_every_branch_member_and_optional_property_turns_up():
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


def test_a_valid_default_is_taken_now_and_then_and_an_invalid_one_never():
    schema = {"type": "integer", "minimum": 0, "maximum": 10**9, "default": 424_242, "examples": [-1]}
    samples = samples_of(schema, SAMPLES)
    assert 0 < samples.count(424_242) < SAMPLES / 2
    assert -1 not in samples


def test_a_sample_does_not_share_its_lists_with_the_schema():
    schema = {"enum": [[1]]}
    Sampler(schema).sample(Random(0)).append(2)
    assert schema == {"enum": [[1]]}


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, "#"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "#"),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "#"),
        ({"type": "number", "multipleOf": 10, "minimum": 1, "maximum": 9}, "#"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "#"),
        ({"type": "string", "enum": [1, 2]}, "#"),
        ({"type": "array", "items": {"enum": [1]}, "minItems": 2, "uniqueItems": True}, "#/items"),
        ({"type": "array", "prefixItems": [True], "items": False, "minItems": 2}, "#"),
        ({"type": "object", "properties": {"a/b": {"type": "string", "pattern": "("}}, "required": ["a/b"]},
         "#/properties/a~1b"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a$", "minLength": 2}},
          "required": ["a"]}, "#/properties/a"),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, "#/properties/a"),
        ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, "#"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "#/properties/a"),
        ({"allOf": [{"type": "integer"}, {"type": "string"}]}, "#"),
        ({"allOf": [{"enum": [1]}, {"enum": [2]}]}, "#"),
        ({"type": "object", "properties": {"a": {"anyOf": []}}, "required": ["a"]}, "#/properties/a"),
        ({"oneOf": [{"const": 1}, {"const": 1}]}, "#"),
        ({"type": "integer", "not": {}}, "#"),
        ({"properties": {"a": {"$ref": "other.json"}}, "required": ["a"], "type": "object"}, "other.json"),
        ({"$ref": "#/$defs/gone"}, "#/$defs/gone"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "#/$defs/a"),
        ({"type": "objekt"}, "#/type"),
        ({"type": "object", "properties": []}, "#/properties"),
        ({"type": "object", "properties": {"a": 3}, "required": ["a"]}, "#/properties/a"),
        ({"type": "string", "minLength": 10**9}, "#"),
    ],
)  # fmt: skip
def test_a_schema_without_instances_is_refused_at_its_pointer(schema, pointer):
    with pytest.raises(SchemaError) as caught:
        Sampler(schema).sample(Random(0))
    assert caught.value.pointer == pointer
    assert str(caught.value).startswith(f"{pointer}: ")


def test_a_schema_that_can_only_nest_without_end_is_refused_soon():
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {
        "type": "object", "required": ["left", "right"],
        "properties": {"left": {"$ref": "#/$defs/a"}, "right": {"$ref": "#/$defs/a"}}}}}  # fmt: skip
    begun = time.perf_counter()
    with pytest.raises(SchemaError, match="without an end"):
        Sampler(schema).sample(Random(0))
    assert time.perf_counter() - begun < 5


def test_an_optional_property_that_can_only_nest_without_end_is_left_out():
    endless = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/endless"}}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "$defs": {"endless": endless}}
    assert samples_of(schema, 20) == [{}] * 20


def test_samples_of_a_recursive_schema_stay_small():
    sizes = [len(json.dumps(value)) for value in samples_of(REFERENCES["a tree"], SAMPLES)]
    assert max(sizes) < 20_000
    assert sum(sizes) / len(sizes) < 2_000


def test_a_schema_is_sampled_in_a_fraction_of_a_millisecond():
    sampler, rng = Sampler(OBJECTS["optional and required"]), Random(0)
    begun = time.process_time()
    for _ in range(SAMPLES):
        sampler.sample(rng)
    # Some 40 microseconds; the bound only catches a return to work that is done anew for each sample.
    assert (time.process_time() - begun) / SAMPLES < 0.005
