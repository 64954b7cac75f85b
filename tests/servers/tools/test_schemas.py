"""Schemas of tools, made from the typed arguments of methods."""

from fastapi.testclient import TestClient
from starlette.requests import Request

from nemo_gym import tool
from nemo_gym.testing import make_server
from tests.servers.tools.shop import Basket, Graded


def parameters(properties, required, **more):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


def test_tool_is_listed_in_request_format(definitions):
    assert definitions["look-up"] == {
        "type": "function",
        "name": "look-up",
        "description": "Look a word up.",
        "parameters": parameters({"word": {"type": "string"}}, ["word"]),
        "strict": False,
    }


def test_tools_are_listed_in_definition_order(definitions):
    assert list(definitions) == ["paint", "order", "odd_names", "roll", "look-up", "fail", "who_asks"]


def test_description_is_the_dedented_docstring(definitions):
    assert definitions["order"]["description"] == "Order wares.\n\nAll at once."


def test_schema_contains_the_choices(definitions):
    assert definitions["paint"]["parameters"] == parameters(
        {
            "colour": {"$ref": "#/$defs/Colour"},
            "finish": {"enum": ["matt", "gloss"], "type": "string", "default": "matt"},
        },
        ["colour"],
        **{"$defs": {"Colour": {"enum": ["red", "blue"], "type": "string"}}},
    )


def test_state_is_hidden_and_title_fields_stay(definitions):
    assert definitions["order"]["parameters"] == parameters(
        {
            "wares": {"type": "array", "items": {"$ref": "#/$defs/Ware"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        ["wares"],
        **{
            "$defs": {
                "Ware": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "amount": {"type": "integer", "default": 1, "minimum": 1},
                    },
                    "required": ["title"],
                }
            }
        },
    )


def test_bounds_and_descriptions_come_from_fields(definitions):
    assert definitions["roll"]["parameters"] == parameters(
        {
            "dice": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many"},
            "sides": {"type": "integer", "minimum": 2, "default": 6, "description": "Of each"},
            "options": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "default": {"title": "roll"},
            },
        },
        ["dice"],
    )


def test_request_is_hidden_from_the_schema(definitions):
    assert definitions["who_asks"]["parameters"] == parameters(
        {"greeting": {"type": "string", "default": "hello"}}, []
    )


def test_tool_list_names_the_independent_tools():
    class Mixed(Graded):
        @tool
        async def pure(self) -> str:
            """Know nothing."""
            return ""

        @tool
        async def stateful(self, basket: Basket) -> str:
            """Know the basket."""
            return ""

        @tool
        async def curious(self, request: Request) -> str:
            """Know the request."""
            return ""

    client = TestClient(make_server(Mixed).setup_webserver())
    assert client.get("/tools").headers["x-nemo-gym-independent-tools"] == "pure"
