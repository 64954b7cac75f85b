"""Tools over MCP, by the real client against real processes: the same calls on the same state as over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import httpx2
import pytest
from itsdangerous import URLSafeSerializer
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from nemo_gym.schemas.rollout import ROLLOUT_HEADER
from nemo_gym.testing import call, reply
from tests.servers.mcp.mcp_servers import COUNTING, LEDGER

ROW: dict[str, Any] = {"responses_create_params": {"input": []}}
GENERATIONS = ("auto", "legacy")
"""The protocol without a handshake, and the one with it that older agents speak."""
pytestmark = [
    pytest.mark.timeout(60),
]


class Under(NamedTuple):
    """A rollout under way: its agent's HTTP client, with the cookie, and its MCP client, with the token."""

    http: httpx.AsyncClient
    mcp: Client
    seeded: dict[str, Any]

    async def told(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """What the tool answers over MCP, and whether that is an error."""
        result = await self.mcp.call_tool(tool, arguments)
        (content,) = result.content
        return content.text, result.is_error

    async def verify(self, *items: Any) -> httpx.Response:
        return await self.http.post("/verify", json={**ROW, "response": reply(*items).model_dump(mode="json")})


@asynccontextmanager
async def mcp_client(url, headers, mode="auto"):
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def rollout(url, mode="auto", **row):
    async with httpx.AsyncClient(base_url=url, verify=False) as http:
        answer = await http.post("/seed_session", json={**ROW, **row})
        assert answer.status_code == 200, answer.text
        seeded = answer.json()
        async with mcp_client(f"{url}{seeded['mcp']['url_path']}", seeded["mcp"]["headers"], mode) as client:
            yield Under(http, client, seeded)


@pytest.fixture(scope="module")
def running(shared_workplace):
    """Both servers, as their launcher starts them."""
    for name, source in (("counting", COUNTING), ("ledger", LEDGER)):
        shared_workplace.environment(name, source, settings="expose_tools_over_mcp: true")
    paths = ",".join(f"resources_servers/{name}/configs/{name}.yaml" for name in ("counting", "ledger"))
    return shared_workplace.start_servers(f"+config_paths=[{paths}]")


@pytest.fixture(scope="module")
def counting(running):
    return running.servers["counting"]["url"]


@pytest.fixture(scope="module")
def ledger(running):
    return running.servers["ledger"]["url"]


async def test_a_seed_tells_where_the_tools_are(counting):
    async with rollout(counting) as under:
        metadata = under.seeded.pop("mcp")
        assert under.seeded == {}
        (header,) = metadata.pop("headers")
        assert header == "X-NeMo-Gym-Session-Token"
        assert metadata == {"server_name": "counting", "url_path": "/mcp", "transport": "http"}


async def test_what_a_seed_answers_otherwise_stays(ledger):
    async with rollout(ledger) as under:
        assert under.seeded["greeting"] == "hello"


async def test_a_token_holds_the_session_and_its_tools(counting):
    async with rollout(counting, allowed=["read", "add"]) as under:
        token = under.seeded["mcp"]["headers"]["X-NeMo-Gym-Session-Token"]
        _, told = URLSafeSerializer("any", salt="nemo-gym-mcp-session-token").loads_unsafe(token)
        assert told.keys() == {"sid", "tools"}
        assert told["tools"] == ["add", "read"]


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_the_tools_are_those_of_http(counting, mode):
    async with rollout(counting, mode) as under:
        listed = (await under.mcp.list_tools()).tools
        over_http = (await under.http.get("/tools")).json()
    assert [(each.name, each.description, each.input_schema) for each in listed] == [
        (each["name"], each["description"], each["parameters"]) for each in over_http
    ]
    assert listed[0].input_schema["properties"] == {"by": {"description": "How many", "type": "integer"}}


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_state_is_the_same_over_both_ways(counting, mode):
    async with rollout(counting, mode, first=10) as under:
        assert await under.told("add", by=2) == ("The counter is at 12.", False)
        assert (await under.http.post("/add", json={"by": 3})).text == "The counter is at 15."
        assert await under.told("read") == ('{"count":15}', False)
        assert (await under.verify()).json()["reward"] == 15


async def test_two_rollouts_at_the_same_time_do_not_see_each_other(counting):
    async with rollout(counting) as one, rollout(counting, "legacy", first=100) as other:
        for step in range(1, 4):
            assert await one.told("add", by=1) == (f"The counter is at {step}.", False)
            assert await other.told("add", by=10) == (f"The counter is at {100 + 10 * step}.", False)
        assert (await one.verify()).json()["reward"] == 3
        assert (await other.verify()).json()["reward"] == 130


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add", {"by": "many"}),
        ("add", {}),
        ("add", {"by": 1, "to": 2}),
        ("add", {"by": 10**30}),
        ("add", {"by": -1}),
        ("read", {"no": None}),
    ],
)
async def test_an_answer_reads_the_same_over_both_ways(counting, tool, arguments):
    async with rollout(counting) as under:
        over_http = await under.http.post(f"/{tool}", json=arguments)
        await under.http.post("/seed_session", json=ROW)
        assert await under.told(tool, **arguments) == (over_http.text, over_http.is_error)


async def test_a_tool_that_is_not_there_is_told_to_the_model(counting):
    async with rollout(counting) as under:
        told = "Unknown tool 'fly'. The tools are: add, read, explode, whose."
        assert await under.told("fly") == (told, True)
        assert await under.told("verify") == (told.replace("fly", "verify"), True)


async def test_a_session_may_be_held_to_some_of_the_tools(counting):
    async with rollout(counting, allowed=["read"], first=4) as under:
        assert [each.name for each in (await under.mcp.list_tools()).tools] == ["read"]
        assert await under.told("read") == ('{"count":4}', False)
        assert await under.told("add", by=1) == ("Unknown tool 'add'. The tools are: read.", True)
        assert (await under.verify()).json()["reward"] == 4


async def test_who_restricts_a_session_is_given_the_row_as_its_seed_is(ledger):
    async with rollout(ledger, only=["look"]) as under:
        assert [each.name for each in (await under.mcp.list_tools()).tools] == ["look"]


async def test_a_session_may_be_held_to_none_of_the_tools(counting):
    async with rollout(counting, allowed=[]) as under:
        assert (await under.mcp.list_tools()).tools == []
        assert await under.told("read") == ("Unknown tool 'read'. The tools are: none.", True)


async def test_a_restriction_to_a_tool_that_is_not_there_fails_the_seed(counting):
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.post(f"{counting}/seed_session", json={**ROW, "allowed": ["read", "fly"]})
    assert (answer.status_code, answer.json()["failure_class"]) == (500, "environment_failed")
    assert "mcp_allowed_tools_for_session names 'fly'; the tools are add, read" in answer.json()["detail"]


def cut(token):
    return token[:-1]


def forged(token):
    """A payload of one's own, signed with a key of one's own."""
    return URLSafeSerializer("Counting___counting", salt="nemo-gym-mcp-session-token").dumps(
        {"sid": "another", "tools": None}
    )


@pytest.mark.parametrize("spoil", [cut, forged, lambda token: "", lambda token: "a.b"])
@pytest.mark.parametrize("mode", GENERATIONS)
async def test_without_the_token_that_the_seed_gave_nothing_is_called(counting, mode, spoil):
    async with rollout(counting, first=7) as under:
        headers = {name: spoil(token) for name, token in under.seeded["mcp"]["headers"].items()}
        async with mcp_client(f"{counting}/mcp", headers, mode) as stranger:
            for refused in (stranger.call_tool("add", {"by": 1}), stranger.list_tools()):
                with pytest.raises(MCPError, match=r"counting: the header X-NeMo-Gym-Session-Token .*/seed_session"):
                    await refused
        assert (await under.verify()).json()["reward"] == 7


async def test_a_token_of_another_server_is_refused(counting, ledger):
    async with rollout(ledger) as under, mcp_client(f"{counting}/mcp", under.seeded["mcp"]["headers"]) as stranger:
        with pytest.raises(MCPError, match="does not hold a token of this server"):
            await stranger.call_tool("read")


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_bug_in_a_tool_fails_the_rollout_and_is_not_shown_to_the_model(running, counting, mode):
    async with rollout(counting, mode, first=1) as under, rollout(counting, first=2) as other:
        result = await under.mcp.call_tool("explode")
        assert result.is_error
        assert result.content[0].text == "The tool explode is out of order. This attempt will not be graded."
        assert result.meta["nemo_gym/problem"]["failure_class"] == "environment_failed"
        running.wait_for("ZeroDivisionError: the secret cause")
        assert await under.told("read") == ('{"count":1}', False)
        verified = await under.verify("Done.")
        assert verified.status_code == 500
        assert verified.json()["failure_class"] == "environment_failed"
        assert "/explode raised ZeroDivisionError: the secret cause" in verified.json()["detail"]
        assert (await other.verify()).json()["reward"] == 2


async def test_a_new_rollout_in_a_failed_ones_session_starts_afresh(counting):
    async with rollout(counting, first=1) as under:
        assert (await under.told("explode"))[1]
        await under.http.post("/seed_session", json={**ROW, "first": 5})
        assert (await under.verify()).json()["reward"] == 5


async def test_a_bug_over_http_is_the_agents_to_notice(counting):
    async with rollout(counting, first=1) as under:
        assert (await under.http.post("/explode", json={})).status_code == 500
        assert (await under.verify()).json()["reward"] == 1


async def test_tools_are_scored_by_their_own_names_and_come_back_as_the_model_called_them(counting):
    called = ["mcp__counting__add", "read", "mcp__elsewhere__add", "mcp__counting__read"]
    async with rollout(counting) as under:
        verified = (await under.verify("Well.", *map(call, called), "Done.")).json()
    assert verified["names"] == ["add", "read", "mcp__elsewhere__add", "read"]
    assert [item["name"] for item in verified["response"]["output"] if "name" in item] == called


async def test_a_call_counts_for_the_rollout_whose_prefix_or_header_it_has(counting):
    async with rollout(counting) as under:
        headers = under.seeded["mcp"]["headers"]
        assert await under.told("whose") == ("None", False)
        async with mcp_client(f"{counting}/ng-rollout/3-1/mcp", headers) as client:
            assert (await client.call_tool("whose")).content[0].text == "3-1"
        async with mcp_client(f"{counting}/mcp", {**headers, ROLLOUT_HEADER: "4-1"}) as client:
            assert (await client.call_tool("whose")).content[0].text == "4-1"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_no_stream_to_wait_on(counting, method):
    async with httpx.AsyncClient(base_url=counting, verify=False) as http:
        assert (await http.request(method, "/mcp")).status_code == 405


async def test_typed_routes_of_the_published_style_are_tools(ledger):
    async with rollout(ledger) as under:
        book, total, describe, look = (await under.mcp.list_tools()).tools
        assert [each.name for each in (book, total, describe, look)] == ["book", "total", "describe", "look"]
        assert [each.description for each in (book, total, describe, look)] == [
            "Book an amount.", "Read the total.", "", "Look at something.",
        ]  # fmt: skip
        assert book.input_schema == {
            "type": "object",
            "properties": {"amount": {"$ref": "#/$defs/Amount"}, "note": {"type": "string", "default": "none"}},
            "required": ["amount"],
            "$defs": {
                "Amount": {
                    "type": "object",
                    "properties": {"euros": {"type": "integer", "minimum": 1.0}},
                    "required": ["euros"],
                }
            },
        }
        assert total.input_schema == {"type": "object", "properties": {}}
        assert describe.input_schema["required"] == ["euros"]
        assert look.input_schema == {
            "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"],
        }  # fmt: skip


async def test_a_call_runs_the_handler_once_in_the_rollouts_session(ledger):
    async with rollout(ledger) as one, rollout(ledger) as other:
        before = int((await one.told("describe", euros=1))[0].strip('"').rpartition(", ")[2])
        assert await one.told("book", amount={"euros": 2}) == ('{"total":2}', False)
        assert (await one.http.post("/book", json={"amount": {"euros": 3}})).json() == {"total": 5}
        assert await other.told("total") == ('{"total":0}', False)
        # The author's own middleware stands before the handler as it does over HTTP.
        assert await one.told("describe", euros=4) == (f'"4 of the house, {before + 2}"', False)
        assert (await one.verify()).json()["reward"] == 5


async def test_what_a_handler_refuses_is_told_in_its_own_words(ledger):
    async with rollout(ledger) as under:
        assert await under.told("book", amount={"euros": 1}, note="forbidden") == (
            '{"detail":"Not in this house."}', True,
        )  # fmt: skip
        text, is_error = await under.told("book", amount={"euros": 0})
        assert is_error
        assert "greater than or equal to 1" in text
        assert (await under.verify()).json()["reward"] == 0


async def test_a_handlers_own_server_error_fails_the_rollout(ledger):
    async with rollout(ledger) as under:
        assert (await under.told("book", amount={"euros": 1}, note="broken"))[1]
        verified = await under.verify()
        assert (verified.status_code, verified.json()["failure_class"]) == (500, "environment_failed")
        assert "The house burns." in verified.json()["detail"]


async def test_a_catch_all_route_answers_the_tools_that_its_author_names(ledger):
    async with rollout(ledger) as under:
        assert await under.told("look", at="it") == ('{"tool":"look","arguments":{"at":"it"}}', False)
        assert (await under.told("listen", at="it"))[1]
