"""Calls of tools by name, and the errors that their callers receive."""

import asyncio
import re
import threading
from typing import Any

from fastapi.testclient import TestClient
from pydantic import PrivateAttr
from starlette.responses import JSONResponse
from typing_extensions import TypeAliasType

from nemo_gym import tool
from nemo_gym.testing import make_server, serving
from tests.each_case import each_case
from tests.servers.tools.shop import Basket, Graded, Length, Shop, Ware


@each_case(
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
def test_call_returns_the_methods_result(shop, name, arguments, answer):
    response = shop.post(f"/{name}", json=arguments, headers={"x-caller": "me"})
    assert (response.status_code, response.text) == (200, answer)


@each_case("number", [2**63 - 1, -(2**64) - 1, 2**80 + 1])
def test_long_integer_keeps_every_digit(shop, number):
    body = {"schema": number, "json": "j", "_x": 1e300, "model_config": True, "copy": [number], "body": "b"}
    assert shop.post("/odd_names", json=body).json() == [number, "j", 1e300, True, [number], "b"]


def test_number_of_5000_digits_is_rejected(shop):
    response = shop.post("/roll", content=b'{"dice": ' + b"9" * 5000 + b"}")
    assert (response.status_code, response.text[:41]) == (422, "Invalid arguments for roll: not valid JSO")


def test_long_number_in_deep_json_is_rejected(shop):
    response = shop.post("/roll", content=b'{"dice": ' + b"[" * 1000 + b"9" * 19 + b"]" * 1000 + b"}")
    # Python 3.11 cannot parse it, and newer versions can.
    assert response.status_code == 422
    assert re.match("Invalid arguments for roll: (not valid JSON|'dice': Input should be)", response.text)


def test_missing_body_means_no_arguments(shop):
    assert shop.post("/who_asks", headers={"x-caller": "you"}).text == "hello you"


def test_plain_def_runs_in_a_thread(shop):
    assert shop.post("/look-up", json={"word": "a"}).text.startswith("blocking handler")


def test_tool_error_is_returned_to_the_model(shop):
    response = shop.post("/fail", json={"how": "divide by zero"})
    assert (response.status_code, response.text) == (422, "Error: cannot divide by zero")


@each_case(
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
def test_wrong_arguments_are_reported_by_name(shop, name, body, problem):
    response = shop.post(f"/{name}", content=body)
    assert response.status_code == 422
    assert response.text.startswith(f"Invalid arguments for {name}: ")
    assert problem in response.text


@each_case(
    ("name", "expected"),
    [
        ("paint", "Expected: colour (one of 'red', 'blue'), finish (one of 'matt', 'gloss', optional)."),
        ("order", "Expected: wares (array of object with title, amount), note (string or null, optional)."),
        ("roll", "Expected: dice (integer), sides (integer, optional), options (object, optional)."),
    ],
)
def test_answer_to_wrong_arguments_lists_the_expected(shop, name, expected):
    assert shop.post(f"/{name}", json={}).text.endswith(expected)


def test_only_ten_wrong_arguments_are_reported(shop):
    response = shop.post("/odd_names", json={f"x{number}": 1 for number in range(100)}).text
    assert response.count(" is missing") + response.count(" is not an argument") == 10
    assert "; and 96 more. Expected: " in response


Endless = TypeAliasType("Endless", "list[Endless] | None")


class Tree(Graded):
    @tool
    async def grow(self, branches: Endless) -> str:
        """Grow a tree."""
        return ""


def test_recursive_type_is_described_once():
    response = TestClient(make_server(Tree).setup_webserver()).post("/grow", json={"branches": "many"})
    assert (response.status_code, response.text.partition("Expected: ")[2]) == (
        422,
        "branches (array of any or null).",
    )


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


@each_case(
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
def test_every_json_value_can_be_returned(kind, status, value):
    answer = TestClient(make_server(Returns).setup_webserver()).post("/give", json={"kind": kind})
    assert (answer.status_code, answer.json()) == (status, value)


async def test_tool_is_still_an_ordinary_method():
    basket = Basket()
    server = make_server(Shop)
    assert await server.order([Ware(title="pen")], basket) == {"ordered": [1], "note": None}
    assert basket.wares == [Ware(title="pen")]


class Meeting(Graded):
    _barrier: threading.Barrier = PrivateAttr(default_factory=lambda: threading.Barrier(2, timeout=100))

    @tool
    def meet(self) -> str:
        """Wait for the other one."""
        self._barrier.wait()
        return "met"


async def test_calls_of_a_plain_def_run_concurrently():
    async with serving(make_server(Meeting)) as client:
        answers = await asyncio.gather(client.post("/meet"), client.post("/meet"))
    assert [answer.text for answer in answers] == ["met", "met"]
