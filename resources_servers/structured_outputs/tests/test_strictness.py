"""Strict schemas whose objects are described in several parts."""

import json

import pytest

from resources_servers.structured_outputs.grading import first_problem

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
"""The `$schema` of each draft."""

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
    "a reference next to properties": {
        "definitions": {"A": A},
        "allOf": [{"$ref": "#/definitions/A"}],
        "properties": B["properties"],
    },
    "an escaped reference next to properties": {
        "definitions": {"Pick<A/a>": A},
        "allOf": [{"$ref": "#/definitions/Pick%3CA~1a%3E"}],
        "properties": B["properties"],
    },
    "alternatives next to properties": {**A, "oneOf": [B, {"properties": {"c": {}}}]},
}


def conforms(document, schema, format_="json"):
    text = document if isinstance(document, str) else json.dumps(document)
    return first_problem(text, format_, json.dumps(schema)) is None


def test_object_of_parts_is_closed_as_a_whole():
    wrong = []
    for draft in DRAFTS:
        for parts in OF_PARTS.values():
            schema = {**draft, **parts}
            found = (
                conforms(BOTH, schema),
                conforms({"a": 1}, schema),
                conforms({**BOTH, "d": 3}, schema),
                conforms({**BOTH, "a": "1"}, schema),
            )
            if found != (True, False, False, False):
                wrong.append((schema, found))
    assert wrong == []


def test_same_definition_can_be_part_or_whole():
    schema = {
        "$defs": {"A": A, "B": B},
        "properties": {"alone": {"$ref": "#/$defs/A"}, "whole": {"$ref": "#/$defs/A", **B}},
    }
    assert conforms({"alone": {"a": 1}, "whole": BOTH}, schema)
    assert not conforms({"alone": BOTH, "whole": BOTH}, schema)


@pytest.mark.parametrize("draft", [each for each in DRAFTS if "draft-04" not in str(each)], ids=str)
def test_conditional_properties_belong_to_the_object(draft):
    asked = {"properties": {"a": {"const": 1}}}
    schema = {**draft, **A, "if": asked, "then": B, "else": {"properties": {"c": {}}}}
    assert conforms(BOTH, schema)
    assert conforms({"a": 2, "c": 3}, schema)
    assert not conforms({"a": 2, "b": 2}, schema)
    assert not conforms({**BOTH, "d": 3}, schema)
    assert conforms("<it><a>1</a><b>2</b></it>", schema, "xml")


def test_dependent_properties_belong_to_the_object():
    schema = {**A, "dependentSchemas": {"a": B}}
    assert conforms(BOTH, schema)
    assert not conforms({**BOTH, "d": 3}, schema)
    assert conforms("a,b\n1,2", schema, "csv")


def test_recursive_part_is_allowed():
    more = {"allOf": [{"$ref": "#"}], "properties": {"b": {}}}
    schema = {"properties": {"a": {}, "next": {"anyOf": [{"type": "null"}, more]}}}
    assert conforms({"a": 1, "next": {"a": 1, "b": 2, "next": None}}, schema)
    assert not conforms({"a": 1, "next": {"a": 1, "b": 2, "next": None, "d": 3}}, schema)


def test_draft_4_exclusive_limits_keep_their_meaning():
    limited = {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False}
    schema = {**DRAFTS[1], "allOf": [A], "properties": {"x": limited}}
    assert conforms({"a": 1, "x": 5}, schema)
    assert not conforms({"a": 1, "x": 0}, schema)
