"""Schemas whose objects are described in several parts: the whole has all that is named, and nothing else."""

import json

import pytest

from nemo_gym.grading.structured import first_problem

A = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"type": "object", "properties": {"b": {"type": "integer"}}}
BOTH = {"a": 1, "b": 2}

NO_DRAFT = {}
DRAFTS = [
    NO_DRAFT,
    {"$schema": "http://json-schema.org/draft-04/schema#"},
    {"$schema": "http://json-schema.org/draft-07/schema#"},
    {"$schema": "https://json-schema.org/draft/2020-12/schema"},
]
"""Which draft a schema names."""

OF_PARTS = {
    "parts": {"allOf": [A, B]},
    "references": {
        "definitions": {"A": A, "B": B},
        "allOf": [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}],
    },
    "a reference to parts": {
        "definitions": {"A": A, "AB": {"allOf": [{"$ref": "#/definitions/A"}, B]}},
        "anyOf": [{"type": "null"}, {"$ref": "#/definitions/AB"}],
    },
    "a reference beside properties": {
        "definitions": {"A": A},
        "allOf": [{"$ref": "#/definitions/A"}],
        "properties": B["properties"],
    },
    "an escaped reference beside properties": {
        "definitions": {"Pick<A/a>": A},
        "allOf": [{"$ref": "#/definitions/Pick%3CA~1a%3E"}],
        "properties": B["properties"],
    },
    "alternatives beside properties": {**A, "oneOf": [B, {"properties": {"c": {}}}]},
}


def conforms(document, schema, format_="json"):
    text = document if isinstance(document, str) else json.dumps(document)
    return first_problem(text, format_, json.dumps(schema)) is None


@pytest.mark.parametrize("draft", DRAFTS, ids=str)
@pytest.mark.parametrize("schema", OF_PARTS.values(), ids=OF_PARTS)
def test_an_object_has_what_its_parts_name_and_nothing_else(schema, draft):
    schema = {**draft, **schema}
    assert conforms(BOTH, schema)
    assert not conforms({"a": 1}, schema)
    assert not conforms({**BOTH, "d": 3}, schema)
    assert not conforms({**BOTH, "a": "1"}, schema)


def test_what_is_a_part_here_is_a_closed_object_elsewhere():
    schema = {
        "$defs": {"A": A, "B": B},
        "properties": {"alone": {"$ref": "#/$defs/A"}, "whole": {"$ref": "#/$defs/A", **B}},
    }
    assert conforms({"alone": {"a": 1}, "whole": BOTH}, schema)
    assert not conforms({"alone": BOTH, "whole": BOTH}, schema)


@pytest.mark.parametrize("draft", [each for each in DRAFTS if "draft-04" not in str(each)], ids=str)
def test_what_a_condition_adds_belongs_to_the_object(draft):
    asked = {"properties": {"a": {"const": 1}}}
    schema = {**draft, **A, "if": asked, "then": B, "else": {"properties": {"c": {}}}}
    assert conforms(BOTH, schema)
    assert conforms({"a": 2, "c": 3}, schema)
    assert not conforms({"a": 2, "b": 2}, schema)
    assert not conforms({**BOTH, "d": 3}, schema)
    assert conforms("<it><a>1</a><b>2</b></it>", schema, "xml")


def test_a_dependent_part_belongs_to_the_object():
    schema = {**A, "dependentSchemas": {"a": B}}
    assert conforms(BOTH, schema)
    assert not conforms({**BOTH, "d": 3}, schema)
    assert conforms("a,b\n1,2", schema, "csv")


def test_an_object_may_be_a_part_of_what_it_holds():
    more = {"allOf": [{"$ref": "#"}], "properties": {"b": {}}}
    schema = {"properties": {"a": {}, "next": {"anyOf": [{"type": "null"}, more]}}}
    assert conforms({"a": 1, "next": {"a": 1, "b": 2, "next": None}}, schema)
    assert not conforms({"a": 1, "next": {"a": 1, "b": 2, "next": None, "d": 3}}, schema)


def test_an_exclusive_limit_of_draft_4_keeps_its_meaning():
    limited = {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False}
    schema = {**DRAFTS[1], "allOf": [A], "properties": {"x": limited}}
    assert conforms({"a": 1, "x": 5}, schema)
    assert not conforms({"a": 1, "x": 0}, schema)
