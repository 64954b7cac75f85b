"""A method with typed arguments is a tool: listed with the schema of its arguments."""

from fastapi.testclient import TestClient
from starlette.requests import Request

from nemo_gym import tool
from nemo_gym.testing import make_server
from tests.servers.tools.shop import Basket, Graded


def parameters(properties, required, **more):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


def test_a_tool_is_listed_as_a_request_lists_it(definitions):
    assert definitions["look-up"] == {
        "type": "function",
        "name": "look-up",
        "description": "Look a word up.",
        "parameters": parameters({"word": {"type": "string"}}, ["word"]),
        "strict": False,
    }


def test_tools_are_listed_in_the_order_of_their_definition(definitions):
    assert list(definitions) == ["paint", "order", "odd_names", "roll", "look-up", "fail", "who_asks"]


def test_the_description_is_the_docstring_without_its_indentation(definitions):
    assert definitions["order"]["description"] == "Order wares.\n\nAll at once."


def test_choices_are_told_in_the_schema(definitions):
    assert definitions["paint"]["parameters"] == parameters(
        {
            "colour": {"$ref": "#/$defs/Colour"},
            "finish": {"enum": ["matt", "gloss"], "type": "string", "default": "matt"},
        },
        ["colour"],
        **{"$defs": {"Colour": {"enum": ["red", "blue"], "type": "string"}}},
    )


def test_a_state_is_no_argument_and_a_model_keeps_its_field_called_title(definitions):
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


def test_bounds_and_descriptions_come_from_fields_in_the_annotation_or_as_the_default(definitions):
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


def test_a_request_is_no_argument(definitions):
    assert definitions["who_asks"]["parameters"] == parameters(
        {"greeting": {"type": "string", "default": "hello"}}, []
    )


def test_the_list_of_tools_names_those_that_see_nothing_of_the_session():
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
