"""`also_serve`: our environments, played by our own adapters, by hostile clients, and by the clients of the packages.

`make borders-openenv borders-ors` installs the packages.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import urllib.request
from contextlib import asynccontextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    EnvironmentFailed,
    JudgeFailed,
    SessionState,
    SimpleResourcesServer,
    tool,
)
from nemo_gym.config.settings import GroupVerification
from nemo_gym.errors import ConfigError, SignatureError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, call, connected_server, make_server, on_a_port, reply, rollout, run, serving
from resources_servers.blackjack.app import BlackjackServer
from resources_servers.calendar.app import CalendarServer
from resources_servers.openenv.app import OpenEnvServer
from resources_servers.ors.app import OrsServer
from resources_servers.ors.client import Ors, OrsSettings
from resources_servers.ors.episodes import Tasks
from resources_servers.ors.group_app import OrsGroupServer
from resources_servers.workplace_assistant.app import WorkplaceAssistantServer
from responses_api_agents.aviary_agent.app import AviaryAgent

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60.0
OURS = {"calendar": CalendarServer, "workplace_assistant": WorkplaceAssistantServer}


def plans_of(name):
    """Return how to solve each example row of an environment: its place, the calls, and the answer."""
    solve = import_module(f"resources_servers.{name}.oracle").solve
    plans = []
    for index, row in enumerate(read_rows(REPOSITORY / f"resources_servers/{name}/data/example.jsonl")):
        *calls, answer = solve(row)
        made = [(each.name, json.loads(each.arguments)) for each in calls]
        plans.append({"reset": {"split": "example", "index": index}, "calls": made, "answer": answer})
    return plans


def agent_of(server, *replies):
    place = {"type": "resources_servers", "name": server.config.name}
    return make_server(AviaryAgent, model=FakeModel(replies), servers=[server], resources_server=place)


async def outcome(kind, url, plan):
    """Play a plan through our own adapter for other frameworks, and return the graded row."""
    calls = [call(name, **arguments) for name, arguments in plan["calls"]]
    if kind == "openenv":
        server = make_server(OpenEnvServer, address=url)
        return await run(agent_of(server, *calls, call("submit", answer=plan["answer"])), reset=plan["reset"])
    server = make_server(OrsServer, address=url)
    return await run(agent_of(server, *calls, plan["answer"]), ors=plan["reset"])


def own(name, **settings):
    examples = {"type": "example", "jsonl_fpath": f"resources_servers/{name}/data/example.jsonl"}
    return make_server(OURS[name], also_serve=["openenv", "ors"], datasets=[examples], **settings)


@pytest.mark.parametrize("kind", ["openenv", "ors"])
@pytest.mark.parametrize("name", OURS)
async def test_round_trip_earns_the_direct_reward(name, kind):
    rows = list(read_rows(REPOSITORY / f"resources_servers/{name}/data/example.jsonl"))
    async with on_a_port(own(name)) as url:
        for plan, row in zip(plans_of(name), rows, strict=True):
            wrong = {**plan, "calls": [], "answer": "I do not know."}
            for each in (plan, wrong):
                calls = [call(tool, **arguments) for tool, arguments in each["calls"]]
                async with rollout(make_server(OURS[name]), **row) as direct:
                    for made in calls:
                        await direct.send(made)
                    graded = await direct.verify(reply(*calls, each["answer"]))
                assert (await outcome(kind, url, each)).reward == graded.reward == float(each is plan)


async def test_episode_that_ends_itself_is_graded():
    file = "resources_servers/openenv/data/example.jsonl"
    server = make_server(OpenEnvServer, also_serve=["ors"], datasets=[{"type": "example", "jsonl_fpath": file}])
    row = next(read_rows(REPOSITORY / file))
    (won,) = import_module("resources_servers.openenv.oracle").solve(row)
    async with on_a_port(server) as url:
        played = make_server(OrsServer, address=url)
        graded = await run(agent_of(played, won, "never asked"), ors={"split": "example", "index": 0})
    assert (graded.reward, graded.finished) == (1.0, True)


class Count(SessionState):
    count: int = 0
    closed: asyncio.Event | None = None

    async def close(self):
        if self.closed is not None:
            self.closed.set()


class Start(BaseSeedSessionRequest):
    first: int = 0


class Graded(BaseVerifyRequest):
    expected: int


class Counting(SimpleResourcesServer):
    """Count to the expected number. 13 breaks the judge."""

    config: BaseResourcesServerConfig

    @cached_property
    def seen(self):
        return SimpleNamespace(closed=asyncio.Event(), bodies=[], begun=asyncio.Event(), may_end=asyncio.Event())

    async def seed_session(self, body: Start, count: Count) -> None:
        if body.first < 0:
            raise RuntimeError("the counter is broken")
        count.count, count.closed = body.first, self.seen.closed

    @tool
    async def add(self, by: int, count: Count) -> str:
        """Add to the counter."""
        if by == 7:
            raise RuntimeError("7 is not on the counter")
        count.count += by
        return f"{count.count}" + " " * 9000 * (by == 9) + "."

    @tool
    async def wait(self, count: Count) -> str:
        """Wait until the test goes on."""
        self.seen.begun.set()
        count.count += 1
        await self.seen.may_end.wait()
        return "waited"

    async def verify(self, body: Graded, count: Count) -> float:
        self.seen.bodies.append(body)
        if count.count == 13:
            raise JudgeFailed("the judge does not answer")
        if count.count == 14:
            raise RuntimeError("a bug of the verifier")
        return float(count.count == body.expected)


FIRSTS = [{"first": 1, "expected": 3}, {"first": 0, "expected": 2}, {"first": -1, "expected": 0}]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    prompt = {"responses_create_params": {"input": [{"role": "user", "content": "Count."}]}}
    path.write_text("".join(json.dumps({**prompt, **each}) + "\n\n" for each in FIRSTS))
    return path


@asynccontextmanager
async def counting(rows, **settings):
    datasets = [{"type": "train", "jsonl_fpath": str(rows)}]
    own = {"name": "counting", "also_serve": ["openenv", "ors"], "datasets": datasets}
    server = connected_server(Counting, {**own, **settings})
    async with on_a_port(server) as url, aiohttp.ClientSession(url) as client:
        yield server, client


@asynccontextmanager
async def socket_of(client, path="/ws"):
    async with client.ws_connect(path) as socket:

        async def say(message, **data):
            text = message if isinstance(message, str | bytes) else json.dumps(message)
            await (socket.send_str(text) if isinstance(text, str) else socket.send_bytes(text))
            return await asyncio.wait_for(socket.receive_json(), PATIENCE_S)

        say.socket = socket
        yield say


def reset(**data):
    return {"type": "reset", "data": data}


def tool_call(name, **arguments):
    return {"type": "step", "data": {"type": "call_tool", "tool_name": name, "arguments": arguments}}


def submit(answer="Done."):
    return {"type": "step", "data": {"type": "submit", "answer": answer}}


def code_of(frame):
    assert frame["type"] == "error", frame
    return frame["data"]["code"]


async def ended(say):
    message = await asyncio.wait_for(say.socket.receive(), PATIENCE_S)
    return message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING)


async def test_openenv_episode_is_graded_by_its_trajectory(rows):
    async with counting(rows) as (server, client), socket_of(client) as say:
        listed = await say({"type": "step", "data": {"type": "list_tools"}})
        assert [each["name"] for each in listed["data"]["observation"]["tools"]] == ["add", "wait", "submit"]
        begun = (await say(reset(split="train", index=0, episode_id="mine")))["data"]
        assert begun["observation"]["prompt"] == [{"role": "user", "content": "Count."}]
        assert begun["observation"]["tool_names"] == ["add", "wait", "submit"]
        assert (begun["reward"], begun["done"]) == (None, False)
        added = (await say(tool_call("add", by=2)))["data"]
        assert added["observation"]["result"]["data"] == "3."
        unknown = (await say(tool_call("subtract")))["data"]
        assert unknown["observation"]["error"]["error_type"] == "tool_not_found"
        wrong = (await say(tool_call("add", by="x")))["data"]
        assert (wrong["observation"]["result"]["is_error"], wrong["reward"]) == (True, None)
        graded = (await say(submit("Three.")))["data"]
        assert (graded["reward"], graded["done"]) == (1.0, True)
        assert code_of(await say(submit())) == code_of(await say(tool_call("add", by=1))) == "EXECUTION_ERROR"
        state = (await say({"type": "state"}))["data"]
        assert (state["episode_id"], state["step_count"], state["index"]) == ("mine", 4, 0)
        (body,) = server.seen.bodies
        kinds = [each.type for each in body.response.output]
        assert kinds == ["function_call", "function_call_output"] * 3 + ["message"]
        assert (body.response.output[0].name, body.response.output[1].output) == ("add", "3.")
        assert body.response.last_text == "Three."
        # The same connection plays the next episode from its own beginning.
        await say(reset(split="train", index=1))
        await say(tool_call("add", by=2))
        assert (await say(submit()))["data"]["reward"] == 1.0


async def test_resets_choose_tasks_in_order_or_by_seed(rows):
    async with counting(rows) as (_, client), socket_of(client) as say:

        async def index(**data):
            return (await say(reset(**data)))["data"]["metadata"]["index"]

        assert [await index(), await index(), await index(seed=3), await index(seed=4)] == [0, 1, 0, 1]
        for wrong in ({"index": 3}, {"index": -1}, {"index": "0"}, {"split": "test"}, {"split": ["train"]}):
            assert code_of(await say(reset(**wrong))) == "VALIDATION_ERROR"


HOSTILE = {
    "no JSON": ("{", "INVALID_JSON"),
    "bytes": (b"\xff", "INVALID_JSON"),
    "deep": ("[" * 100_000, "INVALID_JSON"),
    "list": ("[1]", "VALIDATION_ERROR"),
    "no type": ("{}", "VALIDATION_ERROR"),
    "another type": ({"type": "dance"}, "UNKNOWN_TYPE"),
    "more fields": ({"type": "step", "data": {}, "more": 1}, "VALIDATION_ERROR"),
    "another action": ({"type": "step", "data": {"type": "jump"}}, "VALIDATION_ERROR"),
    "no arguments": ({"type": "step", "data": {"type": "call_tool", "arguments": "{"}}, "VALIDATION_ERROR"),
    "step before reset": (tool_call("add", by=1), "EXECUTION_ERROR"),
    "submit before reset": (submit(), "EXECUTION_ERROR"),
    "broken row": (reset(split="train", index=2), "EXECUTION_ERROR"),
    "half a character": ('{"type":"reset","data":{"split":"\\ud83d"}}', "INVALID_JSON"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_bad_message_has_its_code_and_harms_nobody(kind, rows):
    message, code = HOSTILE[kind]
    async with counting(rows) as (_, client), socket_of(client) as other, socket_of(client) as say:
        await other(reset(split="train", index=0))
        assert code_of(await say(message)) == code
        await other(tool_call("add", by=2))
        assert (await other(submit()))["data"]["reward"] == 1.0
        await say(reset(split="train", index=0))
        await say(tool_call("add", by=2))
        assert (await say(submit()))["data"]["reward"] == 1.0


async def test_large_message_ends_only_its_connection(rows):
    async with counting(rows, max_request_bytes=100_000) as (_, client), socket_of(client) as other:
        await other(reset(split="train", index=0))
        async with client.ws_connect("/ws") as socket:
            await socket.send_str("x" * 200_000)
            assert (await asyncio.wait_for(socket.receive(), PATIENCE_S)).data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        await other(tool_call("add", by=2))
        assert (await other(submit()))["data"]["reward"] == 1.0


@pytest.mark.parametrize("by", [12, 13])
async def test_failing_verifier_gives_no_reward(by, rows):
    plan = {"reset": {"split": "train", "index": 0}, "calls": [("add", {"by": by})], "answer": "Done."}
    async with counting(rows) as (_, client):
        async with socket_of(client) as say:
            await say(reset(split="train", index=0))
            await say(tool_call("add", by=by))
            assert code_of(await say(submit())) == "SESSION_ERROR"
            assert await ended(say)
        for kind in ("openenv", "ors"):
            with pytest.raises(EnvironmentFailed):
                await outcome(kind, str(client._base_url), plan)


async def test_failing_tool_gives_no_reward(rows):
    plan = {"reset": {"split": "train", "index": 0}, "calls": [("add", {"by": 7})], "answer": "Done."}
    async with counting(rows) as (_, client):
        for kind in ("openenv", "ors"):
            with pytest.raises(EnvironmentFailed, match="7 is not on the counter"):
                await outcome(kind, str(client._base_url), plan)


async def test_lost_connection_ends_its_session(rows):
    async with counting(rows) as (server, client):
        async with client.ws_connect("/ws") as socket:
            await socket.send_json(reset(split="train", index=0))
            await socket.receive_json()
            # The connection is cut in the middle of a call.
            await socket.send_json(tool_call("wait"))
            await asyncio.wait_for(server.seen.begun.wait(), PATIENCE_S)
            socket._response.connection.transport.abort()
        await asyncio.wait_for(server.seen.closed.wait(), PATIENCE_S)


async def test_silent_connection_and_idle_session_end(rows):
    async with counting(rows, session_idle_s=0.3) as (_, client), socket_of(client) as say:
        assert await ended(say)
        sid = await create(client)
        # A session that is asked for is not idle, so the pauses between the questions become longer.
        async with asyncio.timeout(PATIENCE_S):
            for pause_s in range(1, 60):
                await asyncio.sleep(pause_s)
                if await ping(client, sid) == 404:
                    break


async def ping(client, sid):
    async with client.post("/ping", headers={"X-Session-ID": sid}) as answer:
        return answer.status


async def test_server_without_a_free_session_says_so(rows):
    async with (
        counting(rows, max_requests_in_flight=2) as (_, client),
        socket_of(client) as one,
        socket_of(client) as two,
    ):
        await one(reset())
        await two(reset())
        async with client.ws_connect("/ws") as third:
            assert code_of(await asyncio.wait_for(third.receive_json(), PATIENCE_S)) == "CAPACITY_REACHED"
        async with client.post("/mcp", data=rpc("openenv/session/create")) as answer:
            assert (await answer.json())["error"]["code"] == -32000
        async with client.post("/create_session") as answer:
            assert answer.status == 503


def rpc(method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


async def test_session_of_http_is_shared_with_one_socket(rows):
    async with counting(rows) as (_, client):

        async def ask(method, **params):
            async with client.post("/mcp", data=rpc(method, **params)) as answer:
                return await answer.json()

        sid = (await ask("openenv/session/create"))["result"]["session_id"]
        async with client.ws_connect("/ws", params={"session_id": sid}) as socket:
            await socket.send_json(reset(split="train", index=0))
            await socket.receive_json()
            called = await ask("tools/call", session_id=sid, name="add", arguments={"by": 2})
            assert called["result"]["data"] == "3."
            async with client.ws_connect("/ws", params={"session_id": sid}) as second:
                assert code_of(await second.receive_json()) == "SESSION_ERROR"
            assert (await ask("openenv/session/close", session_id=sid))["result"]["closing"]
            await socket.send_json(submit())
            assert (await socket.receive_json())["data"]["reward"] == 1.0
        async with asyncio.timeout(PATIENCE_S):
            while "result" in await ask("tools/list", session_id=sid):
                continue
        for method, params, code in (
            ("tools/call", {"name": "add"}, -32602),
            ("tools/call", {"name": "add", "session_id": "forged"}, -32602),
            ("tools/dance", {}, -32601),
        ):
            assert (await ask(method, **params))["error"]["code"] == code
        for text, code in (("{", -32700), ("[]", -32600), ('{"jsonrpc":"1.0"}', -32600)):
            async with client.post("/mcp", data=text) as answer:
                assert (await answer.json())["error"]["code"] == code


async def test_routes_describe_the_environment(rows):
    async with counting(rows) as (_, client):

        async def got(path):
            async with client.get(path) as answer:
                return await answer.json()

        assert await got("/health") == {"status": "healthy"}
        assert (await got("/metadata"))["description"] == "Count to the expected number. 13 breaks the judge."
        assert (await got("/schema"))["action"]["properties"]["type"]["default"] == "call_tool"
        assert await got("/list_environments") == ["counting"]
        assert await got("/counting/splits") == [{"name": "train", "type": "train"}]
        assert (await post(client, "/counting/num_tasks", {"split": "train"})) == {"num_tasks": 3}
        task = {"split": "train", "index": 1}
        assert (await post(client, "/counting/task", task))["task"] == task
        assert (await post(client, "/counting/task_range", {"split": "train", "start": -2}))["tasks"][0] == task
        assert len((await post(client, "/Counting/tasks", {"split": "train"}))["tasks"]) == 3
        for path, body, status in (
            ("/counting/num_tasks", {"split": "test"}, 400),
            ("/counting/task", {"split": "train", "index": 9}, 400),
            ("/other/num_tasks", {"split": "train"}, 404),
            ("/counting/num_tasks", {}, 422),
        ):
            async with client.post(path, json=body) as answer:
                assert answer.status == status
        # The server's own routes are as before.
        assert [each["name"] for each in await got("/tools")] == ["add", "wait"]
        async with client.get("/ws") as answer:
            assert answer.status == 426


async def post(client, path, body=None, sid=None):
    async with client.post(path, json=body or {}, headers={"X-Session-ID": sid} if sid else {}) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def create(client, **task):
    async with client.post("/create_session") as answer:
        sid = (await answer.text()).split("data: ")[1].split("\n")[0]
    await post(client, "/create", task or {"split": "train", "index": 0}, sid)
    return sid


async def events(client, sid, body, path="/counting/call"):
    async with client.post(path, json=body, headers={"X-Session-ID": sid}) as answer:
        lines = [line for line in (await answer.text()).split("\n\n") if line and not line.startswith(":")]
    return [tuple(part.split(": ", 1)[1] if ": " in part else "" for part in each.split("\n")) for each in lines]


def result_of(received):
    return json.loads("".join(data for name, data in received if name in ("chunk", "end")))


async def test_ors_call_is_resumed_by_its_id(rows):
    async with counting(rows) as (server, client):
        sid = await create(client)
        headers = {"X-Session-ID": sid}
        async with client.post("/counting/call", json={"name": "wait", "input": {}}, headers=headers) as answer:
            received = await asyncio.wait_for(answer.content.readuntil(b"\n\n"), PATIENCE_S)
            await asyncio.wait_for(server.seen.begun.wait(), PATIENCE_S)
            answer.close()
        job = received.decode().split("data: ")[1].strip()
        server.seen.may_end.set()
        again = await events(client, sid, {"name": "wait", "input": {}, "task_id": job})
        assert again[0] == ("task_id", job)
        assert result_of(again)["output"]["blocks"][0]["text"] == "waited"
        # The call has run once.
        added = result_of(await events(client, sid, {"name": "add", "input": {"by": 1}}))
        assert added["output"] == {
            "blocks": [{"type": "text", "text": "3."}], "metadata": None, "reward": None, "finished": False,
        }  # fmt: skip
        lost = await events(client, sid, {"name": "add", "input": {}, "task_id": "unknown"})
        assert lost[-1][0] == "error"


async def test_ors_session_ends_with_its_answer(rows):
    async with counting(rows) as (server, client):
        sid = await create(client, task_spec={"split": "train", "index": 0}, secrets={"KEY": "open sesame"})
        async with client.post("/create", json={"split": "train", "index": 0}, headers={"X-Session-ID": sid}) as again:
            assert again.status == 400
        async with client.get("/counting/prompt", headers={"X-Session-ID": sid}) as answer:
            assert await answer.json() == [{"type": "text", "text": "Count."}]
        spaces = result_of(await events(client, sid, {"name": "add", "input": {"by": 9}}))
        assert spaces["output"]["blocks"][0]["text"] == "10" + " " * 9000 + "."
        unknown = result_of(await events(client, sid, {"name": "subtract", "input": {}}))
        assert (unknown["ok"], unknown["reason"]) == (False, "not_found")
        graded = result_of(await events(client, sid, {"name": "submit", "input": {"answer": "Ten."}}))
        assert (graded["output"]["reward"], graded["output"]["finished"]) == (0.0, True)
        over = result_of(await events(client, sid, {"name": "submit", "input": {"answer": "Three."}}))
        assert (over["ok"], over["reason"]) == (False, "episode_finished")
        assert "sesame" not in server.seen.bodies[0].model_dump_json()
        for _ in range(2):
            await post(client, "/delete", None, sid)
        assert await ping(client, sid) == await ping(client, "forged") == 404


async def test_open_session_without_a_task_is_refused(rows):
    async with counting(rows) as (_, client):
        async with client.post("/create_session") as answer:
            sid = (await answer.text()).split("data: ")[1].split("\n")[0]
        for body in ({}, {"split": "train"}, {"task_spec": {"word": 1}}, {"split": "train", "index": 3}):
            async with client.post("/create", json=body, headers={"X-Session-ID": sid}) as answer:
                assert answer.status == 400, body
        async with client.post(
            "/create", json={"split": "train", "index": 2}, headers={"X-Session-ID": sid}
        ) as answer:
            assert answer.status == 500
        headers = {"X-Session-ID": sid}
        async with client.post("/counting/call", json={"name": "add", "input": {}}, headers=headers) as answer:
            assert answer.status == 404


class Longest(SimpleResourcesServer):
    """Rewards the longest answer of a group."""

    config: BaseResourcesServerConfig

    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[float]:
        longest = max(len(each.response.last_text) for each in bodies)
        return [float(len(each.response.last_text) == longest) for each in bodies]


async def test_group_is_scored_over_ors(rows):
    own = {"name": "longest", "also_serve": ["ors", "openenv"], "group_verification": GroupVerification()}
    server = connected_server(Longest, {**own, "datasets": [{"type": "train", "jsonl_fpath": str(rows)}]})
    async with on_a_port(server) as url:
        scored = make_server(OrsGroupServer, address=url, group_verification={})
        async with serving(scored) as client:
            bodies = [
                {"responses_create_params": {"input": []}, "ors": {"split": "train", "index": 0}, "response": each}
                for each in (reply("short").model_dump(mode="json"), reply("a long one").model_dump(mode="json"))
            ]
            answer = await client.post("/groups/verify", json={"bodies": bodies})
        assert [each["reward"] for each in answer.json()["results"]] == [0.0, 1.0]
        async with aiohttp.ClientSession(url) as client, socket_of(client) as say:
            await say(reset())
            assert code_of(await say(submit())) == "EXECUTION_ERROR"


async def test_rows_are_read_lazily_and_again_after_a_change(rows):
    tasks = Tasks("counting", [{"type": "train", "jsonl_fpath": str(rows)}, {"type": "test", "jsonl_fpath": "none"}])
    assert (tasks.splits(), tasks.size("train"), tasks.row("train", 1)["expected"]) == (["train"], 3, 2)
    rows.write_text('{"expected": 8}\n')
    assert (tasks.size("train"), tasks.row("train", 0)) == (1, {"expected": 8})


class Clashing(Counting):
    @tool
    async def ping(self) -> str:
        """Ping."""
        return "pong"


async def test_settings_that_clash_are_reported(rows):
    for cls, settings, problem, kind in (
        (
            Counting,
            {"also_serve": ["opnenv"]},
            "'opnenv' is unknown, because resources_servers",
            ConfigError,
        ),
        (Counting, {"also_serve": ["openenv"], "expose_tools_over_mcp": True}, "Remove expose_tools", SignatureError),
        (BlackjackServer, {"also_serve": ["ors"]}, "counting is a game with the route /reset", SignatureError),
        (Clashing, {"also_serve": ["ors"]}, "has a tool or a route /ping of its own", SignatureError),
    ):
        with pytest.raises(kind, match=problem):
            async with serving(connected_server(cls, {"name": "counting", **settings})):
                pass


TOKEN = "a-token-of-sixteen"


@pytest.fixture(scope="module")
def addresses(shared_workplace):
    """Return the addresses of two environments, each with two processes, in a run with a token."""
    paths = [f"resources_servers/{name}/configs/{name}.yaml" for name in OURS]
    paths.append("responses_api_models/sample_model/configs/sample_model.yaml")
    command = shared_workplace.start_servers(
        f"+config_paths=[{','.join(paths)}]", "+also_serve=[openenv,ors]", "+replicas=2", f"+run_token={TOKEN}"
    )
    asked = urllib.request.Request(f"{command.head}/server_instances", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return {each["config_path"]: each["url"] for each in json.load(answer) if each["config_path"] in OURS}


@pytest.mark.slow
async def test_sessions_are_found_by_either_process(addresses):
    url = addresses["workplace_assistant"]
    plans = plans_of("workplace_assistant")
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async def by_openenv(plan):
        async with aiohttp.ClientSession(url, headers=headers) as client:
            async with client.post("/mcp", data=rpc("openenv/session/create")) as answer:
                sid = (await answer.json())["result"]["session_id"]
            async with client.ws_connect("/ws", params={"session_id": sid}) as socket:
                await socket.send_json(reset(**plan["reset"]))
                assert (await socket.receive_json())["type"] == "observation"
                for name, arguments in plan["calls"]:
                    # Each new connection may reach the other process.
                    async with aiohttp.ClientSession(url, headers=headers) as caller:
                        body = rpc("tools/call", session_id=sid, name=name, arguments=arguments)
                        async with caller.post("/mcp", data=body) as answer:
                            assert "result" in await answer.json()
                await socket.send_json(submit(plan["answer"]))
                return (await socket.receive_json())["data"]["reward"]

    async def by_ors(plan):
        ors = Ors(OrsSettings(address=f"{url}/workplace_assistant", api_key=TOKEN))
        await ors.open()
        try:
            sid = (await ors.stream("/create_session", within_s=PATIENCE_S)).task_id
            await ors.create(sid, plan["reset"])
            for name, arguments in [*plan["calls"], ("submit", {"answer": plan["answer"]})]:
                body = {"name": name, "input": arguments}
                received = await ors.stream("/workplace_assistant/call", sid, body, within_s=PATIENCE_S)
            return json.loads(received.text)["output"]["reward"]
        finally:
            await ors.close()

    played = [play(plan) for play in (by_openenv, by_ors) for plan in plans * 2]
    assert await asyncio.gather(*played) == [1.0] * len(played)


@pytest.mark.slow
async def test_caller_without_the_token_is_rejected(addresses):
    async with aiohttp.ClientSession(addresses["calendar"]) as client:
        for headers in ({}, {"X-API-Key": "wrong"}):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await client.ws_connect("/ws", headers=headers)
            async with client.post("/create_session", headers=headers) as answer:
                assert answer.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await client.ws_connect("/ws", headers={"Origin": "http://evil.example"})


def python_of(kind, module):
    python = os.environ.get(f"NEMO_GYM_{kind.upper()}_PYTHON") or str(REPOSITORY / f".venv-{kind}/bin/python")
    found = f"from importlib.util import find_spec; raise SystemExit(find_spec('{module}') is None)"
    if not Path(python).is_file() or subprocess.run([python, "-c", found], check=False).returncode:
        pytest.skip(f"no Python with {module}: run `make borders-{kind}`, or set NEMO_GYM_{kind.upper()}_PYTHON")
    return python


def played_by(program, python, words, plans, **env):
    command = [python, str(Path(__file__).with_name(program)), *words]
    finished = subprocess.run(
        command, input=json.dumps(plans), capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, **env},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_clients_of_openenv_earn_the_reward(name, addresses):
    plans = plans_of(name)
    wrong = {"reset": {"split": "example", "index": 0}, "calls": [], "answer": "I do not know."}
    played = played_by("also_openenv.py", python_of("openenv", "openenv"), [addresses[name], TOKEN], [*plans, wrong])
    assert [each["reward"] for each in played] == [1.0, 1.0, 1.0, 1.0, 1.0, 0.0] * 2
    assert all(each["done"] for each in played)
    assert "the episode is over" in played[0]["problem"]
    assert played[0]["steps"] == len(plans[0]["calls"]) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("kind", ["ors", "openreward", "trl"])
def test_clients_of_ors_earn_the_reward(kind, name, addresses):
    python = python_of("ors", kind)
    wrong = {"reset": {"split": "example", "index": 0}, "calls": [], "answer": "I do not know."}
    plans = [*plans_of(name), wrong]
    played = played_by("also_ors.py", python, [kind, addresses[name], TOKEN], plans, ENVIRONMENT=name)
    assert [each["reward"] for each in played] == [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    assert all(each["done"] for each in played)
    assert all("over" in each.get("problem", "over") for each in played)
