"""Tools over MCP with the real client and real processes: the same calls and state as over HTTP."""

from __future__ import annotations

import re
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
from tests.each_case import each_case
from tests.servers.mcp.mcp_servers import COUNTING, LEDGER

pytestmark = pytest.mark.slow

ROW: dict[str, Any] = {"responses_create_params": {"input": []}}
GENERATIONS = ("auto", "legacy")
"""The protocol without a handshake, and the older one with it."""


class Under(NamedTuple):
    """A running rollout: its agent's HTTP client with the cookie, and its MCP client with the token."""

    http: httpx.AsyncClient
    mcp: Client
    seeded: dict[str, Any]

    async def call_tool(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """Call a tool over MCP. Return its answer, and whether it is an error."""
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
    """Both servers, started by the launcher."""
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


async def test_seed_response_contains_the_mcp_address(counting):
    async with rollout(counting) as under:
        metadata = under.seeded.pop("mcp")
        assert under.seeded == {}
        (header,) = metadata.pop("headers")
        assert header == "X-NeMo-Gym-Session-Token"
        assert metadata == {"server_name": "counting", "url_path": "/mcp", "transport": "http"}


async def test_seed_response_keeps_its_other_fields(ledger):
    async with rollout(ledger) as under:
        assert under.seeded["greeting"] == "hello"


async def test_token_contains_the_session_and_its_tools(counting):
    async with rollout(counting, allowed=["read", "add"]) as under:
        token = under.seeded["mcp"]["headers"]["X-NeMo-Gym-Session-Token"]
        _, content = URLSafeSerializer("any", salt="nemo-gym-mcp-session-token").loads_unsafe(token)
        assert content.keys() == {"sid", "tools"}
        assert content["tools"] == ["add", "read"]


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_tools_are_the_same_as_over_http(counting, mode):
    async with rollout(counting, mode) as under:
        listed = (await under.mcp.list_tools()).tools
        over_http = (await under.http.get("/tools")).json()
    assert [(each.name, each.description, each.input_schema) for each in listed] == [
        (each["name"], each["description"], each["parameters"]) for each in over_http
    ]
    assert listed[0].input_schema["properties"] == {"by": {"description": "How many", "type": "integer"}}


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_mcp_and_http_share_the_state(counting, mode):
    async with rollout(counting, mode, first=10) as under:
        assert await under.call_tool("add", by=2) == ("The counter is at 12.", False)
        assert (await under.http.post("/add", json={"by": 3})).text == "The counter is at 15."
        assert await under.call_tool("read") == ('{"count":15}', False)
        assert (await under.verify()).json()["reward"] == 15


async def test_concurrent_rollouts_are_isolated(counting):
    async with rollout(counting) as one, rollout(counting, "legacy", first=100) as other:
        for step in range(1, 4):
            assert await one.call_tool("add", by=1) == (f"The counter is at {step}.", False)
            assert await other.call_tool("add", by=10) == (f"The counter is at {100 + 10 * step}.", False)
        assert (await one.verify()).json()["reward"] == 3
        assert (await other.verify()).json()["reward"] == 130


@each_case(
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
async def test_mcp_and_http_answers_are_the_same(counting, tool, arguments):
    async with rollout(counting) as under:
        over_http = await under.http.post(f"/{tool}", json=arguments)
        await under.http.post("/seed_session", json=ROW)
        assert await under.call_tool(tool, **arguments) == (over_http.text, over_http.is_error)


@each_case(
    ("url", "shown"),
    [
        ("data:image/png;base64,AAAA", {"type": "image", "data": "AAAA", "mime_type": "image/png"}),
        (
            "https://example.com/dot.png",
            {
                "type": "text",
                "text": '{"type":"input_image","detail":"auto","image_url":"https://example.com/dot.png"}',
            },
        ),
    ],
)
async def test_images_become_blocks_of_their_own(counting, url, shown):
    async with rollout(counting) as under:
        text, image = (await under.mcp.call_tool("draw", {"url": url})).content
    assert text.text == "a dot"
    assert image.model_dump(exclude_none=True) == shown


async def test_unknown_tool_is_reported_to_the_model(counting):
    async with rollout(counting) as under:
        message = "Unknown tool 'fly'. The tools are: add, read, explode, whose, draw."
        assert await under.call_tool("fly") == (message, True)
        assert await under.call_tool("verify") == (message.replace("fly", "verify"), True)


async def test_session_may_be_restricted_to_some_tools(counting):
    async with rollout(counting, allowed=["read"], first=4) as under:
        assert [each.name for each in (await under.mcp.list_tools()).tools] == ["read"]
        assert await under.call_tool("read") == ('{"count":4}', False)
        assert await under.call_tool("add", by=1) == ("Unknown tool 'add'. The tools are: read.", True)
        assert (await under.verify()).json()["reward"] == 4


async def test_restriction_receives_the_row_like_the_seed(ledger):
    async with rollout(ledger, only=["look"]) as under:
        assert [each.name for each in (await under.mcp.list_tools()).tools] == ["look"]


async def test_session_may_be_restricted_to_no_tools(counting):
    async with rollout(counting, allowed=[]) as under:
        assert (await under.mcp.list_tools()).tools == []
        assert await under.call_tool("read") == ("Unknown tool 'read'. The tools are: none.", True)


async def test_restriction_to_unknown_tool_fails_the_seed(counting):
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.post(f"{counting}/seed_session", json={**ROW, "allowed": ["read", "fly"]})
    assert (answer.status_code, answer.json()["failure_class"]) == (500, "environment_failed")
    assert (
        "mcp_allowed_tools_for_session returned unknown tools: 'fly'. The tools are: add, read"
        in answer.json()["detail"]
    )


def cut(token):
    return token[:-1]


def forged(token):
    """Return a forged payload, signed with another key."""
    return URLSafeSerializer("Counting___counting", salt="nemo-gym-mcp-session-token").dumps(
        {"sid": "another", "tools": None}
    )


REJECTED = re.compile(r"counting: the header X-NeMo-Gym-Session-Token .*/seed_session")


@each_case("spoil", [cut, forged, lambda token: "", lambda token: "a.b"])
@each_case("mode", GENERATIONS)
async def test_call_without_the_seeds_token_is_rejected(counting, mode, spoil):
    async with rollout(counting, first=7) as under:
        headers = {name: spoil(token) for name, token in under.seeded["mcp"]["headers"].items()}
        async with mcp_client(f"{counting}/mcp", headers, mode) as stranger:
            result = await stranger.call_tool("add", {"by": 1})
            assert result.is_error
            assert REJECTED.match(result.content[0].text)
            with pytest.raises(MCPError, match=REJECTED):
                await stranger.list_tools()
        assert (await under.verify()).json()["reward"] == 7


async def test_token_of_another_server_is_rejected(counting, ledger):
    async with rollout(ledger) as under, mcp_client(f"{counting}/mcp", under.seeded["mcp"]["headers"]) as stranger:
        result = await stranger.call_tool("read")
        assert (result.is_error, "is not a token of this server" in result.content[0].text) == (True, True)


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_tool_bug_fails_rollout_hidden_from_the_model(running, counting, mode):
    async with rollout(counting, mode, first=1) as under, rollout(counting, first=2) as other:
        result = await under.mcp.call_tool("explode")
        assert result.is_error
        assert result.content[0].text == "The tool explode does not work. This attempt will not be graded."
        assert result.meta["nemo_gym/problem"]["failure_class"] == "environment_failed"
        running.wait_for("ZeroDivisionError: the secret cause")
        assert await under.call_tool("read") == ('{"count":1}', False)
        verified = await under.verify("Done.")
        assert verified.status_code == 500
        assert verified.json()["failure_class"] == "environment_failed"
        assert re.search(r"/explode raised \S+: ZeroDivisionError: the secret cause", verified.json()["detail"])
        assert (await other.verify()).json()["reward"] == 2


async def test_new_rollout_in_failed_session_starts_fresh(counting):
    async with rollout(counting, first=1) as under:
        assert (await under.call_tool("explode"))[1]
        await under.http.post("/seed_session", json={**ROW, "first": 5})
        assert (await under.verify()).json()["reward"] == 5


async def test_bug_over_http_is_left_to_the_agent(counting):
    async with rollout(counting, first=1) as under:
        assert (await under.http.post("/explode", json={})).status_code == 500
        assert (await under.verify()).json()["reward"] == 1


async def test_tool_names_are_normalized_only_for_grading(counting):
    called = ["mcp__counting__add", "read", "mcp__elsewhere__add", "mcp__counting__read"]
    async with rollout(counting) as under:
        verified = (await under.verify("Well.", *map(call, called), "Done.")).json()
    assert verified["names"] == ["add", "read", "mcp__elsewhere__add", "read"]
    assert [item["name"] for item in verified["response"]["output"] if "name" in item] == called


async def test_call_belongs_to_rollout_of_prefix_or_header(counting):
    async with rollout(counting) as under:
        headers = under.seeded["mcp"]["headers"]
        assert await under.call_tool("whose") == ("None", False)
        async with mcp_client(f"{counting}/ng-rollout/3-1/mcp", headers) as client:
            assert (await client.call_tool("whose")).content[0].text == "3-1"
        async with mcp_client(f"{counting}/mcp", {**headers, ROLLOUT_HEADER: "4-1"}) as client:
            assert (await client.call_tool("whose")).content[0].text == "4-1"


@each_case("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_allowed(counting, method):
    async with httpx.AsyncClient(base_url=counting, verify=False) as http:
        assert (await http.request(method, "/mcp")).status_code == 405


async def test_typed_routes_of_published_style_are_tools(ledger):
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


async def test_call_runs_once_in_the_rollouts_session(ledger):
    async with rollout(ledger) as one, rollout(ledger) as other:
        before = int((await one.call_tool("describe", euros=1))[0].strip('"').rpartition(", ")[2])
        assert await one.call_tool("book", amount={"euros": 2}) == ('{"total":2}', False)
        assert (await one.http.post("/book", json={"amount": {"euros": 3}})).json() == {"total": 5}
        assert await other.call_tool("total") == ('{"total":0}', False)
        # The author's own middleware runs as it does over HTTP.
        assert await one.call_tool("describe", euros=4) == (f'"4 of the house, {before + 2}"', False)
        assert (await one.verify()).json()["reward"] == 5


async def test_handlers_rejection_reaches_the_model_unchanged(ledger):
    async with rollout(ledger) as under:
        assert await under.call_tool("book", amount={"euros": 1}, note="forbidden") == (
            '{"detail":"Not in this house."}', True,
        )  # fmt: skip
        text, is_error = await under.call_tool("book", amount={"euros": 0})
        assert is_error
        assert "greater than or equal to 1" in text
        assert (await under.verify()).json()["reward"] == 0


async def test_handlers_server_error_fails_the_rollout(ledger):
    async with rollout(ledger) as under:
        assert (await under.call_tool("book", amount={"euros": 1}, note="broken"))[1]
        verified = await under.verify()
        assert (verified.status_code, verified.json()["failure_class"]) == (500, "environment_failed")
        assert "The house burns." in verified.json()["detail"]


async def test_catch_all_route_handles_tools_its_author_names(ledger):
    async with rollout(ledger) as under:
        assert await under.call_tool("look", at="it") == ('{"tool":"look","arguments":{"at":"it"}}', False)
        assert (await under.call_tool("listen", at="it"))[1]
