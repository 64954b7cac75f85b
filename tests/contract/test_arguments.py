"""Tests of the odd arguments that fit a tool's schema."""

import json
from enum import Enum
from typing import Annotated, Literal

import jsonschema
from pydantic import BaseModel, Field

from nemo_gym.contract.arguments import odd_arguments
from nemo_gym.servers.tools.tool import Tool


class Colour(Enum):
    RED = "red"


class Node(BaseModel):
    name: str
    children: list["Node"] = []


def called(parameters):
    return [json.loads(arguments) for arguments in odd_arguments(parameters)]


def test_arguments_fit_a_schema_of_all_types():
    async def use(
        text: str,
        count: Annotated[int, Field(ge=1)],
        below: Annotated[float, Field(lt=-1)],
        colour: Colour,
        side: Literal["left"],
        names: Annotated[list[str], Field(min_length=2)],
        node: Node,
        long: Annotated[str, Field(min_length=3, max_length=5)],
        either: int | str = 0,
        maybe: bool | None = None,
    ) -> str: ...

    schema = Tool.of(use, name="use").parameters
    odd, empty = called(schema)
    for arguments in (odd, empty):
        jsonschema.validate(arguments, schema)
    assert odd | {"node": None} == {
        "text": "no_such_value",
        "count": 1,
        "below": -2,
        "colour": "red",
        "side": "left",
        "names": ["no_such_value"] * 2,
        "node": None,
        "long": "no_su",
        "either": 0,
        "maybe": False,
    }
    assert (empty["text"], empty["long"], "maybe" in empty) == ("", "xxx", False)


def test_schemas_without_rules_are_accepted():
    assert called({}) == [{}, {}]
    assert called({"properties": {"any": {}, "odd": True}, "required": ["any"]}) == [
        {"any": "no_such_value", "odd": None},
        {"any": ""},
    ]
