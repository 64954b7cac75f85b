"""Python types for the JSON schemas of tools."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from nemo_gym.errors import UsageError
from nemo_gym.training.trl.signatures import hint_of, method_of
from tests.each_case import each_case

SHARED = {"Node": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}
HINTS = [
    ({"type": "string"}, str),
    ({"type": "number"}, float),
    ({"type": "array", "items": {"type": "integer"}}, list[int]),
    ({"type": "object", "additionalProperties": {"type": "boolean"}}, dict[str, bool]),
    ({"type": "object", "properties": {"x": {"type": "integer"}}}, dict),
    ({"enum": ["a", 1, None]}, Literal["a", 1, None]),
    ({"const": "a"}, Literal["a"]),
    ({"enum": [0.5], "type": "number"}, float),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, int | None),
    ({"type": ["integer", "string"]}, int | str),
    ({"$ref": "#/$defs/Node"}, list[Any]),
    (True, Any),
]


@each_case(("schema", "hint"), HINTS)
def test_schemas_become_type_hints(schema, hint):
    assert hint_of(schema, SHARED) == hint


@each_case(
    "definition",
    [
        {"name": "reset"},
        {"name": "_hidden"},
        {"name": "find", "parameters": {"properties": {"from": {"type": "string"}}}},
        {"name": "find", "parameters": {"properties": {"a-b": {"type": "string"}}}},
    ],
)
def test_tool_that_cannot_be_a_method_is_rejected(definition):
    with pytest.raises(UsageError, match=r"TRL cannot call the tool .* Use nemo_gym.training.trl.Rollouts"):
        method_of(definition, lambda environment, name, arguments: "")
