"""Property tests: a sample is valid, and a satisfiable schema is not rejected."""

import json
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from responses_api_models.sample_model.json_schema.references import SchemaError
from responses_api_models.sample_model.json_schema.texts import FORMATS
from responses_api_models.sample_model.sampler import Sampler
from responses_api_models.sample_model.tests.schemas import samples_of, validator_of

NAMES = st.sampled_from(["a", "b", "c", "long name", "x/y"])
BOUNDS = st.one_of(st.integers(-50, 50), st.sampled_from([-2.5, 0.1, 0.75, 12.5]))
LENGTHS = st.integers(0, 6)
PATTERNS = st.sampled_from(["^[a-f]{0,4}$", "\\d", "^(x|yz)+$", "a.c", "^\\w+-\\w+$"])
EASY_PATTERNS = st.sampled_from(["\\d", "^[a-z]+$", "^[A-Z]", "^\\d{4}-\\d{2}-\\d{2}$"])


def keywords(**strategies):
    """Return a strategy for any selection of these keywords."""
    return st.fixed_dictionaries({}, optional=strategies)


def typed(name, **strategies):
    return keywords(**strategies).map(lambda schema: {"type": name, **schema})


LEAVES = st.one_of(
    st.sampled_from([True, {}, {"type": "boolean"}, {"type": "null"}, {"$ref": "#/$defs/tree"}, False]),
    st.lists(st.one_of(st.integers(-3, 3), st.booleans(), st.none(), st.text("ab", max_size=2)), min_size=1)
    .map(lambda members: {"enum": members}),
    typed("integer", minimum=BOUNDS, maximum=BOUNDS, multipleOf=st.sampled_from([1, 2, 3, 0.5, 2.5])),
    typed("number", exclusiveMinimum=BOUNDS, exclusiveMaximum=BOUNDS, minimum=BOUNDS, multipleOf=st.just(0.1)),
    typed("string", minLength=LENGTHS, maxLength=LENGTHS, pattern=PATTERNS),
    typed("string", format=st.sampled_from(["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "uri"]),
          maxLength=st.integers(5, 60)),
)  # fmt: skip


def compound(inner):
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        typed("array", items=inner, prefixItems=some, minItems=LENGTHS, maxItems=LENGTHS, uniqueItems=st.booleans(),
              contains=inner),
        typed("object", properties=st.dictionaries(NAMES, inner, max_size=4),
              required=st.lists(NAMES, unique=True, max_size=3), additionalProperties=inner, minProperties=LENGTHS,
              maxProperties=LENGTHS, patternProperties=st.dictionaries(st.sampled_from(["^x", "c$"]), inner),
              propertyNames=st.just({"maxLength": 6}),
              dependentRequired=st.dictionaries(NAMES, st.lists(NAMES, unique=True, max_size=2), max_size=2)),
        keywords(anyOf=some, oneOf=some, allOf=some),
        st.builds(lambda left, right: {**as_dict(left), **as_dict(right)}, inner, inner),
        inner.map(lambda schema: {"not": schema}),
        st.tuples(inner, inner, inner).map(lambda parts: dict(zip(("if", "then", "else"), parts, strict=True))),
    )  # fmt: skip


def as_dict(schema):
    return schema if isinstance(schema, dict) else {}


SCHEMAS = st.recursive(LEAVES, compound, max_leaves=8)
TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}


@given(schema=SCHEMAS, seed=st.integers(0, 1000))
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_each_sample_is_valid(schema, seed):
    schema = {"allOf": [schema], "$defs": {"tree": TREE}}
    sampler, rng, validator = Sampler(schema), Random(seed), validator_of(schema)
    for _ in range(5):
        try:
            value = sampler.sample(rng)
        except SchemaError:
            continue
        assert validator.is_valid(json.loads(json.dumps(value, allow_nan=False))), value


def ordered(low, high):
    """Return a function that puts two bounds of a schema in order."""
    return lambda schema: (
        {**schema, low: min(schema[low], schema[high]), high: max(schema[low], schema[high])}
        if low in schema and high in schema
        else schema
    )


SATISFIABLE_LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"$ref": "#/$defs/tree"}, {"const": "x"}]),
    typed("integer", minimum=st.integers(-50, 50), maximum=st.integers(-50, 50)).map(ordered("minimum", "maximum")),
    typed("number", minimum=BOUNDS, maximum=BOUNDS).map(ordered("minimum", "maximum")),
    typed("string", minLength=LENGTHS, maxLength=LENGTHS).map(ordered("minLength", "maxLength")),
    typed("string", pattern=EASY_PATTERNS, minLength=st.integers(0, 3)),
    typed("string", format=st.sampled_from(sorted(FORMATS))),
)


def satisfiable_compound(inner):
    return st.one_of(
        typed("array", items=inner, minItems=LENGTHS, maxItems=LENGTHS).map(ordered("minItems", "maxItems")),
        typed("object", properties=st.dictionaries(NAMES, inner, max_size=4), required=st.lists(NAMES, unique=True)),
        typed("object", additionalProperties=inner, minProperties=LENGTHS),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": [*parts, False]}),
        inner.map(lambda schema: {"allOf": [schema, {"description": "the same"}, schema]}),
    )


@given(schema=st.recursive(SATISFIABLE_LEAVES, satisfiable_compound, max_leaves=10), seed=st.integers(0, 1000))
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_satisfiable_schemas_are_not_rejected(schema, seed):
    schema = {"allOf": [schema], "$defs": {"tree": TREE}}
    validator = validator_of(schema)
    for value in samples_of(schema, 5, seed):
        assert validator.is_valid(json.loads(json.dumps(value, allow_nan=False))), value
