"""The tool of a server in its own process, called by a real MCP client and over plain HTTP."""

import re
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, reply
from resources_servers.example_mcp_weather.app import weather_in

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))


@pytest.fixture(scope="module")
def url():
    """The server, started by its own file."""
    process = subprocess.Popen(
        [sys.executable, FOLDER / "app.py"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        printed = iter(process.stderr.readline, "")
        url = next(found[1] for line in printed if (found := re.search(r"listens on (http://[\d.:]+)", line)))
        wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait(100)


def wait_for(url: str, patience_s: float = 100.0) -> None:
    """Wait until the server answers, because it logs its address before it listens."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            httpx.get(url, verify=False)
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


class Attempt(NamedTuple):
    """A running rollout with both of its clients."""

    http: httpx.AsyncClient
    mcp: Client
    row: dict[str, Any]

    async def ask(self, city: str, *, over_mcp: bool) -> str:
        if not over_mcp:
            return (await self.http.post("/get_weather", json={"city": city})).text
        result = await self.mcp.call_tool("get_weather", {"city": city})
        assert not result.is_error
        return result.content[0].text

    async def verify(self, *items: Any) -> dict[str, Any]:
        body = {**self.row, "response": reply(*items).model_dump(mode="json")}
        return (await self.http.post("/verify", json=body)).json()


@asynccontextmanager
async def rollout(url, row, headers=None):
    async with httpx.AsyncClient(base_url=url, verify=False) as http:
        seeded = (await http.post("/seed_session", json=row)).json()["mcp"]
        async with (
            httpx2.AsyncClient(headers=seeded["headers"] if headers is None else headers) as over_mcp,
            Client(streamable_http_client(url + seeded["url_path"], http_client=over_mcp)) as client,
        ):
            yield Attempt(http, client, row)


async def test_mcp_lists_the_tool_as_http_does(url):
    async with rollout(url, EXAMPLES[0]) as attempt:
        (listed,) = (await attempt.mcp.list_tools()).tools
        (over_http,) = (await attempt.http.get("/tools")).json()
    assert listed.name == over_http["name"] == "get_weather"
    assert listed.description == over_http["description"] == "Return today's weather in a city."
    assert listed.input_schema == over_http["parameters"]


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["verifier_metadata"]["expected_city"])
async def test_both_protocols_earn_the_same_reward(url, row):
    city = row["verifier_metadata"]["expected_city"]
    graded = []
    for over_mcp, name in ((False, "get_weather"), (True, "mcp__example_mcp_weather__get_weather")):
        async with rollout(url, row) as attempt:
            answer = await attempt.ask(city, over_mcp=over_mcp)
            for items in ((call(name, city=city), answer), (call(name, city="Atlantis"), answer), ("",)):
                verified = await attempt.verify(*items)
                graded.append([over_mcp, answer, *(verified[key] for key in ("reward", "expected_weather"))])
    assert [each[1:] for each in graded if each[0]] == [each[1:] for each in graded if not each[0]]
    assert [reward for _, _, reward, _ in graded] == [1.0, 0.0, 0.0] * 2


async def test_concurrent_rollouts_do_not_interfere(url):
    async with rollout(url, EXAMPLES[0]) as one, rollout(url, EXAMPLES[1]) as other:
        for _ in range(3):
            assert str(weather_in("Reykjavik")) in await one.ask("Reykjavik", over_mcp=True)
            assert str(weather_in("Porto")) in await other.ask("Porto", over_mcp=True)


async def test_wrong_arguments_get_the_same_message_as_http(url):
    async with rollout(url, EXAMPLES[0]) as attempt:
        for arguments in ({}, {"city": 1}, {"city": "Oslo", "day": "today"}):
            over_http = await attempt.http.post("/get_weather", json=arguments)
            result = await attempt.mcp.call_tool("get_weather", arguments)
            assert over_http.status_code == 422
            assert (result.is_error, result.content[0].text) == (True, over_http.text)


@pytest.mark.parametrize("headers", [{}, {"X-NeMo-Gym-Session-Token": "made.up"}], ids=["no token", "a wrong one"])
async def test_calls_without_a_valid_token_are_rejected(url, headers):
    async with rollout(url, EXAMPLES[0], headers) as attempt:
        result = await attempt.mcp.call_tool("get_weather", {"city": "Oslo"})
        assert result.is_error
        assert "X-NeMo-Gym-Session-Token" in result.content[0].text
