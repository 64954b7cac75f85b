"""A method with typed arguments is a tool: listed with its schema, called by name, its caller told what went wrong."""

import asyncio
import threading
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field, PrivateAttr
from starlette.requests import Request
from starlette.responses import JSONResponse
from typing_extensions import TypeAliasType

from nemo_gym import BaseVerifyRequest, SessionState, SimpleResourcesServer, Tool, ToolError, tool
from nemo_gym.errors import SignatureError
from nemo_gym.servers.tools import RESERVED_NAMES, is_callable_name
from nemo_gym.testing import make_server, serving


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Ware(BaseModel):
    title: str
    amount: int = Field(default=1, ge=1)


class Length(BaseModel):
    metres: float


class Basket(SessionState):
    wares: list[Ware] = Field(default_factory=list)


class Graded(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0


class Shop(Graded):
    @tool
    async def paint(self, colour: Colour, finish: Literal["matt", "gloss"] = "matt") -> str:
        """Paint the wall."""
        return f"{colour!r} {finish}"

    @tool
    async def order(self, wares: list[Ware], basket: Basket, note: str | None = None) -> dict[str, Any]:
        """Order wares.

        All at once.
        """
        basket.wares += wares
        return {"ordered": [ware.amount for ware in wares], "note": note}

    @tool
    async def odd_names(
        self, schema: int, json: str, _x: float, model_config: bool, copy: list[int], body: str
    ) -> list:
        """Take arguments whose names mean something elsewhere."""
        return [schema, json, _x, model_config, copy, body]

    @tool
    async def roll(
        self,
        dice: Annotated[int, Field(ge=1, le=9, description="How many")],
        sides: int = Field(default=6, ge=2, description="Of each"),
        options: dict[str, str] = {"title": "roll"},  # noqa: B006
    ) -> str:
        """Roll dice."""
        return f"{dice}d{sides} {options['title']}"

    @tool(name="look-up", description="Look a word up.")
    def look_up(self, word: str) -> str:
        """This is not what the model reads."""
        return threading.current_thread().name

    @tool
    async def fail(self, how: str) -> str:
        """Fail in a way of one's own."""
        raise ToolError(f"cannot {how}")

    @tool
    async def who_asks(self, request: Request, greeting: str = "hello") -> str:
        """Name the caller."""
        return f"{greeting} {request.headers['x-caller']}"


@pytest.fixture
def shop():
    with TestClient(make_server(Shop).setup_webserver()) as client:
        yield client


@pytest.fixture
def definitions(shop):
    return {each["name"]: each for each in shop.get("/tools").json()}


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


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("paint", {"colour": "red"}, "<Colour.RED: 'red'> matt"),
        ("order", {"wares": [{"title": "pen"}, {"title": "cup", "amount": 2}]}, '{"ordered":[1,2],"note":null}'),
        (
            "odd_names",
            {"schema": 1, "json": "j", "_x": 0.5, "model_config": True, "copy": [1], "body": "b"},
            '[1,"j",0.5,true,[1],"b"]',
        ),
        ("roll", {"dice": 2}, "2d6 roll"),
        ("roll", {"dice": "2", "sides": 20.0, "options": {"title": "t"}}, "2d20 t"),
        ("who_asks", {}, "hello me"),
    ],
)
def test_a_call_answers_what_the_method_returns(shop, name, arguments, answer):
    told = shop.post(f"/{name}", json=arguments, headers={"x-caller": "me"})
    assert (told.status_code, told.text) == (200, answer)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**64) - 1, 2**80 + 1])
def test_a_long_integer_arrives_to_the_last_digit(shop, number):
    body = {"schema": number, "json": "j", "_x": 1e300, "model_config": True, "copy": [number], "body": "b"}
    assert shop.post("/odd_names", json=body).json() == [number, "j", 1e300, True, [number], "b"]


def test_a_number_without_end_is_refused(shop):
    told = shop.post("/roll", content=b'{"dice": ' + b"9" * 5000 + b"}")
    assert (told.status_code, told.text[:41]) == (422, "Invalid arguments for roll: not valid JSO")


def test_no_body_is_no_arguments(shop):
    assert shop.post("/who_asks", headers={"x-caller": "you"}).text == "hello you"


def test_a_plain_def_runs_in_a_thread(shop):
    assert shop.post("/look-up", json={"word": "a"}).text.startswith("blocking handler")


def test_a_tool_error_is_told_to_the_model(shop):
    told = shop.post("/fail", json={"how": "divide by zero"})
    assert (told.status_code, told.text) == (422, "Error: cannot divide by zero")


@pytest.mark.parametrize(
    ("name", "body", "problem"),
    [
        ("paint", '{"colour": "green"}', "'colour': Input should be 'red' or 'blue' (found 'green')"),
        ("paint", '{"finish": "matt"}', "'colour' is missing"),
        ("paint", '{"colour": "red", "size": 1}', "'size' is not an argument"),
        ("order", '{"wares": [{"title": "pen", "amount": 0}]}', "'wares.0.amount': Input should be greater than"),
        ("order", '{"wares": [], "basket": {"wares": []}}', "'basket' is not an argument"),
        ("roll", '{"dice": 1.5}', "'dice': Input should be a valid integer"),
        ("roll", '{"dice": null}', "'dice': Input should be a valid integer"),
        ("roll", '{"dice": 1, "arg_sides": 3}', "'arg_sides' is not an argument"),
        ("roll", "[1]", "expected a JSON object, found list"),
        ("roll", '{"dice": 1', "not valid JSON"),
        ("roll", '"dice"', "expected a JSON object, found str"),
    ],
)
def test_wrong_arguments_are_told_by_name(shop, name, body, problem):
    told = shop.post(f"/{name}", content=body)
    assert told.status_code == 422
    assert told.text.startswith(f"Invalid arguments for {name}: ")
    assert problem in told.text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paint", "Expected: colour (one of 'red', 'blue'), finish (one of 'matt', 'gloss', optional)."),
        ("order", "Expected: wares (array of object with title, amount), note (string or null, optional)."),
        ("roll", "Expected: dice (integer), sides (integer, optional), options (object, optional)."),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_expected(shop, name, expected):
    assert shop.post(f"/{name}", json={}).text.endswith(expected)


def test_of_many_wrong_arguments_the_first_ten_are_told(shop):
    told = shop.post("/odd_names", json={f"x{number}": 1 for number in range(100)}).text
    assert told.count(" is missing") + told.count(" is not an argument") == 10
    assert "; and 96 more. Expected: " in told


Endless = TypeAliasType("Endless", "list[Endless] | None")


class Tree(Graded):
    @tool
    async def grow(self, branches: Endless) -> str:
        """Grow a tree."""
        return ""


def test_wrong_arguments_of_a_kind_that_contains_itself_are_answered_too():
    told = TestClient(make_server(Tree).setup_webserver()).post("/grow", json={"branches": "many"})
    assert (told.status_code, told.text.partition("Expected: ")[2]) == (422, "branches (array of any or null).")


class Returns(Graded):
    @tool
    async def give(self, kind: str) -> Any:
        """Return something."""
        return {
            "model": Ware(title="pen"),
            "models": [Ware(title="pen")],
            "nothing": None,
            "response": JSONResponse({"teapot": True}, 418),
            "big": 2**80,
            "keys": {1: "one"},
            "endless": Length(metres=float("inf")),
        }[kind]


@pytest.mark.parametrize(
    ("kind", "status", "value"),
    [
        ("model", 200, {"title": "pen", "amount": 1}),
        ("models", 200, [{"title": "pen", "amount": 1}]),
        ("nothing", 200, None),
        ("response", 418, {"teapot": True}),
        ("big", 200, 2**80),
        ("keys", 200, {"1": "one"}),
        ("endless", 200, {"metres": None}),
    ],
)
def test_whatever_is_json_can_be_returned(kind, status, value):
    answer = TestClient(make_server(Returns).setup_webserver()).post("/give", json={"kind": kind})
    assert (answer.status_code, answer.json()) == (status, value)


class Base(Graded):
    @tool
    async def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @tool
    async def leave(self) -> str:
        """Leave."""
        return "bye"


class Louder(Base):
    async def greet(self, name: str) -> str:
        return f"HELLO {name}"

    @tool(name="exit")
    async def leave(self) -> str:
        """Slam the door."""
        return "BYE"


def test_tools_are_inherited_overridden_and_renamed():
    client = TestClient(make_server(Louder).setup_webserver())
    assert [each["name"] for each in client.get("/tools").json()] == ["greet", "exit"]
    assert client.post("/greet", json={"name": "you"}).text == "HELLO you"
    assert client.post("/exit").text == "BYE"
    assert client.post("/leave").status_code == 404


class FromData(Graded):
    def tools(self) -> list[Tool]:
        return [
            Tool.of(partial(self._ask_about, topic), name=f"ask_{topic}", description=f"Ask about {topic}.")
            for topic in ("birds", "stones")
        ]

    async def _ask_about(self, topic: str, question: str) -> str:
        return f"{topic}: {question}"


def test_tools_known_only_from_data_override_tools():
    client = TestClient(make_server(FromData).setup_webserver())
    listed = client.get("/tools").json()
    assert [(each["name"], each["description"]) for each in listed] == [
        ("ask_birds", "Ask about birds."),
        ("ask_stones", "Ask about stones."),
    ]
    assert list(listed[0]["parameters"]["properties"]) == ["question"]
    assert client.post("/ask_stones", json={"question": "why"}).text == "stones: why"


LENGTHS = {"type": "object", "properties": {"metres": {"type": "number", "minimum": 0}}, "required": ["metres"]}


class WithSchemaFromData(Graded):
    def tools(self) -> list[Tool]:
        return [Tool.of(self._feet, name="to_feet", description="Metres to feet.", parameters=LENGTHS)]

    async def _feet(self, arguments: dict[str, Any], basket: Basket) -> str:
        basket.wares.append(Ware(title=f"{arguments['metres']:g} m"))
        return f"{arguments['metres'] * 3.28:.2f}, {len(basket.wares)} asked so far"


def test_a_tool_with_a_schema_from_data_receives_the_checked_arguments_as_one_dict():
    client = TestClient(make_server(WithSchemaFromData).setup_webserver())
    assert client.get("/tools").json()[0]["parameters"] == LENGTHS
    assert client.post("/to_feet", json={"metres": 2}).text == "6.56, 1 asked so far"
    refused = client.post("/to_feet", json={"metres": -1})
    assert refused.status_code == 422
    assert refused.text.startswith("Invalid arguments for to_feet: 'metres': -1 is less than the minimum of 0.")
    assert client.post("/to_feet", json={}).text.startswith('Invalid arguments for to_feet: "metres" is a required')
    assert client.post("/to_feet", json={"metres": 1}).text == "3.28, 2 asked so far"


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
ODD = {
    "anything": True,
    "pair": {"type": "array", "items": [{"type": "string"}]},
    "either": {"type": ["string", "null"], "maxLength": 3},
}


class WithOddSchema(WithSchemaFromData):
    def tools(self) -> list[Tool]:
        return [Tool.of(self._feet, name="odd", parameters={"$schema": DRAFT_7, "properties": ODD})]


def test_wrong_arguments_by_any_schema_from_data_are_answered_shortly():
    told = TestClient(make_server(WithOddSchema).setup_webserver()).post("/odd", json={"either": "x" * 5000})
    assert (told.status_code, len(told.text) < 500) == (422, True)
    assert told.text.endswith(
        "Expected: anything (any, optional), pair (array of any, optional), either (string or null, optional)."
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [({"type": "nonsense"}, "not a JSON Schema"), ({"properties": {"a": 3}}, "not a JSON Schema")],
)
def test_a_schema_from_data_that_is_none_is_refused_at_start(schema, message):
    async def method(arguments: dict[str, Any]) -> str:
        return ""

    with pytest.raises(SignatureError, match=message):
        Tool.of(method, name="x", parameters=schema)


def test_a_schema_from_data_needs_a_method_with_one_parameter():
    async def method(metres: float, feet: float) -> str:
        return ""

    with pytest.raises(SignatureError, match="as one parameter, a dict"):
        Tool.of(method, name="x", parameters=LENGTHS)


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


async def test_a_tool_is_an_ordinary_method_too():
    basket = Basket()
    server = make_server(Shop)
    assert await server.order([Ware(title="pen")], basket) == {"ordered": [1], "note": None}
    assert basket.wares == [Ware(title="pen")]


async def returns_text(self) -> str:
    """Return."""
    return ""


def server_with(method, attribute="act", **options):
    return make_server(type("Wrong", (Graded,), {"__module__": __name__, attribute: tool(**options)(method)}))


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_route_of_the_server_cannot_be_a_tool(name):
    with pytest.raises(SignatureError, match=rf"'{name}' is a route of every resources server.*@tool\(name="):
        server_with(returns_text, name=name).setup_webserver()


@pytest.mark.parametrize("name", ["a b", "a/b", "../x", "ä", "x" * 65, "verify\n"])
def test_a_tools_name_is_one_word(name):
    assert not is_callable_name(name)
    with pytest.raises(SignatureError, match="not a tool's name"):
        server_with(returns_text, name=name).setup_webserver()


@pytest.mark.parametrize("method", ["startup", "sessions", "compute_metrics"])
def test_a_tool_does_not_take_the_place_of_the_servers_own_method(method):
    with pytest.raises(SignatureError, match=rf"the place of \w+\.{method}; .*@tool\(name=\"{method}\"\)"):
        server_with(returns_text, method).tools()


class Twice(Graded):
    @tool(name="act")
    async def one(self) -> str:
        """One."""
        return ""

    @tool(name="act")
    async def two(self) -> str:
        """Two."""
        return ""


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(SignatureError, match="Twice has two tools called 'act'"):
        make_server(Twice).setup_webserver()


class NoSchema:
    """Pydantic knows nothing of it."""


class Needy(SessionState):
    count: int
    limit: int = 3


async def untyped(self, amount) -> str: ...
async def any_number(self, *amounts: int) -> str: ...
async def any_name(self, **amounts: int) -> str: ...
async def positional(self, amount: int, /) -> str: ...
async def no_schema(self, thing: NoSchema) -> str: ...
async def needy_state(self, state: Needy) -> str: ...
async def optional_state(self, basket: Basket | None = None) -> str: ...


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (untyped, "give the argument 'amount' a type"),
        (any_number, r"'\*amounts: int' has no schema; name each argument"),
        (any_name, r"'\*\*amounts: int' has no schema; name each argument"),
        (positional, "remove the '/' behind 'amount'"),
        (no_schema, "the arguments have no JSON Schema"),
        (needy_state, r"SessionState Needy, .* give every field of it a default \(count\)"),
        (optional_state, "type it as the SessionState alone"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_start_with_the_reason(method, message):
    with pytest.raises(SignatureError, match=message) as refused:
        server_with(method).setup_webserver()
    assert method.__name__ in str(refused.value)


class Meeting(Graded):
    _barrier: threading.Barrier = PrivateAttr(default_factory=lambda: threading.Barrier(2, timeout=5))

    @tool
    def meet(self) -> str:
        """Wait for the other one."""
        self._barrier.wait()
        return "met"


async def test_calls_of_a_plain_def_run_side_by_side():
    async with serving(make_server(Meeting)) as client:
        answers = await asyncio.gather(client.post("/meet"), client.post("/meet"))
    assert [answer.text for answer in answers] == ["met", "met"]
