"""The agent from the README of example_mcp_weather: copied, run, and rewarded like the HTTP agent."""

import re
from pathlib import Path

import orjson
import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
WEATHER = REPOSITORY / "resources_servers" / "example_mcp_weather"
CONFIG = WEATHER / "configs" / "example_mcp_weather.yaml"
SAMPLE_MODEL = REPOSITORY / "responses_api_models" / "sample_model" / "configs" / "sample_model.yaml"
PREFIX = "mcp__example_mcp_weather__"

DILIGENT = '''
"""A model that calls the only tool for the requested city and repeats its result."""

import orjson
from starlette.requests import Request

from nemo_gym import NeMoGymResponse, SimpleResponsesAPIModel
from nemo_gym.testing import call, reply


class DiligentModel(SimpleResponsesAPIModel):
    async def responses(self, request: Request) -> NeMoGymResponse:
        asked = orjson.loads(await request.body())
        results = [item["output"] for item in asked["input"] if item.get("type") == "function_call_output"]
        if results:
            return reply(f"I looked it up. {results[-1]}")
        (tool,) = asked["tools"]
        city = "Porto" if "Porto" in orjson.dumps(asked["input"]).decode() else "elsewhere"
        return reply(call(tool["name"], city=city))

    async def chat_completions(self, request: Request):
        raise NotImplementedError
'''
MODEL_CONFIG = "policy_model:\n  responses_api_models:\n    diligent_model:\n      entrypoint: app.py\n"


def block_of_readme(language):
    """Return the README's only code block in this language."""
    (block,) = re.findall(
        rf"^```{language}\n(.*?)^```$", (WEATHER / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    return block


@pytest.fixture(scope="module")
def rollouts(shared_workplace):
    """The rollouts of both agents, with a model that answers correctly for one of the cities."""
    shared_workplace.write("responses_api_agents/mcp_agent/app.py", block_of_readme("python"))
    agent = shared_workplace.write("responses_api_agents/mcp_agent/configs/mcp_agent.yaml", block_of_readme("yaml"))
    shared_workplace.write("responses_api_models/diligent_model/app.py", DILIGENT)
    model = shared_workplace.write("responses_api_models/diligent_model/configs/diligent_model.yaml", MODEL_CONFIG)
    command = shared_workplace.run(
        "ng_e2e_collect_rollouts",
        f"+config_paths=[{CONFIG},{agent},{model}]",
        "+split=example",
        "+output_jsonl_fpath=rollouts.jsonl",
        "+head_server.port=0",
        timeout_s=90,
    )
    assert command.code == 0, command.out + command.err
    rows = [orjson.loads(line) for line in (shared_workplace.folder / "rollouts.jsonl").read_bytes().splitlines()]
    return {
        over: sorted(
            (row for row in rows if row["agent_ref"]["name"] == f"example_mcp_weather_{over}_agent"),
            key=lambda row: row["verifier_metadata"]["expected_city"],
        )
        for over in ("simple", "mcp")
    }


def test_every_rollout_is_scored(rollouts):
    assert [len(each) for each in rollouts.values()] == [5, 5]


def test_rewards_are_equal_over_http_and_mcp(rollouts):
    earned = [
        [(row["verifier_metadata"]["expected_city"], row["reward"], row["tool_call_seen"]) for row in each]
        for each in rollouts.values()
    ]
    assert earned[0] == earned[1]
    assert {city for city, reward, _ in earned[0] if reward == 1.0} == {"Porto"}


def test_tool_results_are_equal_and_names_prefixed(rollouts):
    results, names = (
        {
            over: [[item[key] for item in row["response"]["output"] if key in item] for row in each]
            for over, each in rollouts.items()
        }
        for key in ("output", "name")
    )
    assert results["simple"] == results["mcp"]
    assert all("degrees Celsius" in answer for (answer,) in results["mcp"])
    assert names == {"simple": [["get_weather"]] * 5, "mcp": [[f"{PREFIX}get_weather"]] * 5}
