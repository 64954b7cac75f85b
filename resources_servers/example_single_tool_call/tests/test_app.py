"""The tool answers, and every rollout is rewarded."""

from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout
from resources_servers.example_single_tool_call.app import WeatherServer

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


@pytest.fixture
def server():
    return make_server(WeatherServer)


@pytest.mark.parametrize("city", ["Oslo", "Sant Cugat del Vallès", "東京", ""])
async def test_it_is_cold_everywhere(server, city):
    async with rollout(server) as attempt:
        assert await attempt.call("get_weather", city=city) == f"The weather in {city} is cold."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'city' is missing"),
        ({"city": 7}, "'city': Input should be a valid string (found 7)"),
        ({"city": "Oslo", "day": "today"}, "'day' is not an argument"),
    ],
)
async def test_model_receives_a_message_about_wrong_arguments(server, arguments, problem):
    async with rollout(server) as attempt:
        answer = await attempt.call("get_weather", **arguments)
    assert answer == f"Invalid arguments for get_weather: {problem}. Expected: city (string)."


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(reply(call("get_weather", city="Oslo"), "It is cold."), id="the tool was called"),
        pytest.param(reply("It is cold."), id="the tool was not called"),
        pytest.param(reply(call("get_weather", town="Oslo")), id="the tool was called wrongly"),
        pytest.param(reply(), id="nothing was said"),
    ],
)
async def test_every_rollout_is_rewarded(server, response):
    async with rollout(server, **EXAMPLES[0]) as attempt:
        assert (await attempt.verify(response)).reward == 1.0


@pytest.mark.parametrize("row", EXAMPLES)
async def test_graded_example_contains_its_row_and_reward(server, row):
    async with rollout(server, **row) as attempt:
        graded = await attempt.verify(reply("It is cold."))
    assert graded.reward == 1.0
    assert graded.responses_create_params.model_dump(exclude_unset=True, exclude={"input"}) == {}
    assert [item.content for item in graded.responses_create_params.input] == [
        message["content"] for message in row["responses_create_params"]["input"]
    ]


def test_model_sees_one_tool(server):
    (definition,) = [each.definition for each in server.tools()]
    assert definition["name"] == "get_weather"
    assert definition["description"] == "Return today's weather in a city."
    assert definition["parameters"]["properties"] == {"city": {"type": "string"}}
    assert definition["parameters"]["required"] == ["city"]
