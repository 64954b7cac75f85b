"""Schemas of every kind that the sampler supports, by name."""

from random import Random

import jsonschema_rs

from responses_api_models.sample_model.json_schema.texts import FORMATS
from responses_api_models.sample_model.sampler import Sampler

NUMBERS = {
    "any integer": {"type": "integer"},
    "any number": {"type": "number"},
    "integer from 1 to 6": {"type": "integer", "minimum": 1, "maximum": 6},
    "integer between exclusive bounds": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3},
    "integer between fractional bounds": {"type": "integer", "minimum": 0.5, "maximum": 1.5},
    "negative integer": {"type": "integer", "maximum": -5},
    "very large integer": {"type": "integer", "minimum": 2**70},
    "number in an open interval": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
    "number in a point": {"type": "number", "minimum": 0.1, "maximum": 0.1},
    "number from far away": {"type": "number", "minimum": 1e300},
    "number next to its bound": {"type": "number", "exclusiveMinimum": 1, "maximum": 1.0000000000000002},
    "multiple of 7": {"type": "integer", "multipleOf": 7, "minimum": 10},
    "cents": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1},
    "integer multiple of 2.5": {"type": "integer", "multipleOf": 2.5},
    "multiple of both 4 and 6": {"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]},
    "bounds without a type": {"minimum": 3, "maximum": 4},
    "exclusive bound of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer", "minimum": 3, "exclusiveMinimum": True, "maximum": 4,
    },
}  # fmt: skip
TEXTS = {
    "any text": {"type": "string"},
    "at least 30 characters": {"type": "string", "minLength": 30},
    "at most 2 characters": {"type": "string", "maxLength": 2},
    "no characters": {"type": "string", "maxLength": 0},
    "exactly 5 characters": {"type": "string", "minLength": 5, "maxLength": 5},
    "a pattern that is not anchored": {"type": "string", "pattern": "[A-Z]+", "minLength": 12},
    "a pattern of digits": {"type": "string", "pattern": "^\\d{4}$"},
    "a pattern of a time of day": {"type": "string", "pattern": "^([01]\\d|2[0-3]):[0-5]\\d$"},
    "a pattern with an example": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$", "examples": ["AB-123", "no"]},
    "a pattern and a format": {"type": "string", "format": "date", "pattern": "^20"},
    "an unknown format": {"type": "string", "format": "colour"},
    **{f"format {name}": {"type": "string", "format": name} for name in FORMATS},
}
CHOICES = {
    "true": True,
    "nothing asked": {},
    "const": {"const": {"a": [1, None]}},
    "enum": {"enum": ["a", 1, None, True, [2]]},
    "enum under a type": {"type": "string", "enum": ["a", 1, None]},
    "enum under a format": {"type": "string", "format": "date", "enum": ["2024-01-31"]},
    "list of types": {"type": ["string", "null"], "minLength": 3},
    "every type": {"type": ["string", "integer", "number", "boolean", "null", "object", "array"]},
    "not a text": {"not": {"type": "string"}},
    "not one word": {"type": "string", "enum": ["a", "b", "c"], "not": {"const": "b"}},
    "neither of two": {"type": "integer", "allOf": [{"not": {"const": 1}}, {"not": {"const": 2}}], "minimum": 0},
    "anyOf": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string", "maxLength": 2}]},
    "anyOf under a type": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                           "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "anyOf with an impossible branch": {"anyOf": [False, {"type": "null"}, {"type": "integer", "enum": ["a"]}]},
    "oneOf that overlaps": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]},
    "anyOf twice": {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]},
                              {"anyOf": [{"type": "string"}, {"type": "null"}]}]},
    "oneOf twice": {"type": "integer", "allOf": [{"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]},
                                                 {"oneOf": [{"multipleOf": 2}, {"minimum": 50}]}]},
    "allOf that narrows": {"allOf": [{"type": ["integer", "string"]}, {"type": "number"}, {"minimum": 5}]},
    "if then else": {"type": "object", "properties": {"unit": {"enum": ["c", "f"]}, "degrees": {"type": "integer"}},
                     "required": ["unit", "degrees"], "if": {"properties": {"unit": {"const": "c"}}},
                     "then": {"properties": {"degrees": {"maximum": 40}}},
                     "else": {"properties": {"degrees": {"minimum": 60}}}},
}  # fmt: skip
ARRAYS = {
    "any array": {"type": "array"},
    "items": {"type": "array", "items": {"type": "integer"}},
    "exactly three": {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3},
    "a hundred": {"type": "array", "items": {"type": "integer"}, "minItems": 100},
    "all of an enum": {"type": "array", "items": {"enum": list(range(10))}, "minItems": 10, "uniqueItems": True},
    "both booleans": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True},
    "different numbers": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 5},
                          "uniqueItems": True, "minItems": 4},
    "a tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    "a whole tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2,
                      "items": {"type": "null"}},
    "a tuple of draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
                           "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"}},
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 90}},
    "contains two things": {"type": "array", "items": {"enum": [1, 2, 3]},
                            "allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}]},
    "an impossible optional item": {"type": "array", "prefixItems": [{"type": "integer"}, False]},
    "tuples merged": {"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
                                {"prefixItems": [{"minimum": 3}, {"minLength": 2}], "minItems": 3}]},
    "rows of numbers": {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "number"}}},
}  # fmt: skip
OBJECTS = {
    "any object": {"type": "object"},
    "optional and required": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                              "required": ["a"], "additionalProperties": False},
    "required but not described": {"type": "object", "required": ["a", "b"]},
    "a dictionary": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    "five properties": {"type": "object", "minProperties": 5, "maxProperties": 5,
                        "properties": {"a": {}, "b": {}, "c": False}},
    "few of many": {"type": "object", "maxProperties": 1, "properties": {name: {} for name in "abcdef"}},
    "property names": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "minProperties": 3,
                       "properties": {"long": {}}},
    "property names of an enum": {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
    "dependent": {"type": "object", "properties": {"card": {"type": "integer"}, "address": {"type": "string"}},
                  "dependentRequired": {"card": ["address"]}},
    "dependent schemas": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                          "dependentSchemas": {"a": {"required": ["b"]}}},
    "dependencies of draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                                "properties": {"a": {}, "b": {}, "c": {"type": "integer"}}, "minProperties": 1,
                                "dependencies": {"a": ["b"], "b": {"properties": {"c": {"minimum": 7}}}}},
    "closed by another part": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}},
                                          "additionalProperties": False},
                                         {"properties": {"a": {"minimum": 3}, "b": {"type": "string"}},
                                          "required": ["a"]}]},
    "base and extension": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "string"}}}],
                           "unevaluatedProperties": False,
                           "$defs": {"base": {"type": "object", "properties": {"a": {"type": "integer"}},
                                              "required": ["a"]}}},
    "default and examples": {"type": "object", "required": ["a", "b"],
                             "properties": {"a": {"type": "integer", "default": "seven"},
                                            "b": {"type": "string", "maxLength": 4, "examples": ["ok", "too long"]}}},
}  # fmt: skip
NODE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "left": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "right": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "others": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
    "required": ["value", "left", "right", "others"],
    "additionalProperties": False,
}
EXPRESSION = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "number"}, "value": {"type": "number"}},
         "required": ["kind", "value"]},
        {"type": "object", "properties": {"kind": {"const": "sum"}, "terms": {
            "type": "array", "items": {"$ref": "#/$defs/Expression"}, "minItems": 2}}, "required": ["kind", "terms"]},
        {"type": "object", "properties": {"kind": {"const": "not"}, "of": {"$ref": "#/$defs/Expression"}},
         "required": ["kind", "of"]},
    ]
}  # fmt: skip
REFERENCES = {
    "a tree": {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
    "an expression": {"$ref": "#/$defs/Expression", "$defs": {"Expression": EXPRESSION}},
    "definitions": {"$ref": "#/definitions/a", "definitions": {"a": {"type": "integer"}}},
    "a chain": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "string", "maxLength": 3}}},
    "escaped names": {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "null"}}},
    "next to other keywords": {"$ref": "#/$defs/a", "minimum": 5, "$defs": {"a": {"type": "integer", "maximum": 7}}},
    "to the root": {"type": "object", "properties": {"next": {"$ref": "#"}, "list": {"items": {"$ref": "#"}}}},
    "into a list": {"allOf": [{"type": "integer"}, {"$ref": "#/allOf/0"}]},
    "a union that holds itself": {"anyOf": [{"$ref": "#/$defs/Json"}], "$defs": {"Json": {"anyOf": [
        {"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Json"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}}]}}},
    "two trees merged": {"allOf": [{"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/Positive"}], "$defs": {
        "Node": NODE, "Positive": {"properties": {"value": {"minimum": 1}, "left": {"$ref": "#/$defs/MaybePositive"}}},
        "MaybePositive": {"anyOf": [{"$ref": "#/$defs/Positive", "type": "object"}, {"type": "null"}]}}},
}  # fmt: skip
EVERY_SCHEMA = {**NUMBERS, **TEXTS, **CHOICES, **ARRAYS, **OBJECTS, **REFERENCES}


def validator_of(schema):
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def samples_of(schema, count, seed=0):
    sampler, rng = Sampler(schema), Random(seed)
    return [sampler.sample(rng) for _ in range(count)]
