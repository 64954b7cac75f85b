"""Tools of stub MCP servers that work, hang, die and flood, and the grading of answers and calls."""

import os
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nemo_gym import EnvironmentFailed, InvalidTask
from nemo_gym.testing import call, make_server, reply, rollout, serving

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is an extra: pip install 'nemo-gym[mcp]' 'mcp>=2'")

from resources_servers.mcp_tools.app import McpToolsServer
from resources_servers.mcp_tools.child import in_sandbox
from resources_servers.mcp_tools.settings import McpServer, Sandbox

STUB = str(Path(__file__).parent / "stub_child.py")
PYTHON = os.path.realpath(sys.executable)
ROW = {"expected_answer": "3"}
FULL_ROW = {"responses_create_params": {"input": []}, **ROW}


def stub(kind, **more):
    return {"command": [sys.executable, "-S", STUB, kind], **more}


def served(servers, **settings):
    settings = {"start_timeout_s": 60, "tool_timeout_s": 60, "largest_message_mb": 2, **settings}
    return make_server(McpToolsServer, mcp_servers=servers, **settings)


@asynccontextmanager
async def session(*kinds, **settings):
    servers = {f"s{number}": stub(kind) for number, kind in enumerate(kinds)}
    async with serving(served(servers, **settings)) as client:
        seeded = await client.post("/seed_session", json=FULL_ROW)
        assert seeded.status_code == 200, seeded.text
        yield client
        await client.post("/close_session")


async def names_of(client):
    return [each["name"] for each in (await client.get("/session_tools")).json()]


async def test_clashing_and_forbidden_names_get_a_prefix():
    async with session("works", "names") as client:
        names = await names_of(client)
    assert names[:3] == ["s0__act", "s1__act", "s1__act_2"]
    assert names[3] == "s1__verify"
    assert len(names[4]) == 64
    assert names[5:] == ["s1__a_b", "a_b"]


async def test_calls_reach_the_server_of_their_name():
    async with session("works", "error") as client:
        first = await client.post("/s0__act", json={"n": 1, "deep": [{}]})
        second = await client.post("/s1__act", json={})
        unknown = await client.post("/act", json={})
    assert (first.status_code, first.text) == (200, '{"n": 1, "deep": [{}]}')
    assert (second.status_code, second.text) == (422, "Error: no such city")
    assert (unknown.status_code, unknown.text) == (422, "Unknown tool 'act'.")


async def test_images_are_parts_and_other_contents_text():
    async with session("images") as client:
        parts = (await client.post("/act", json={})).json()
    assert [part["type"] for part in parts] == ["input_text", "input_image", *["input_text"] * 3]
    assert parts[1]["image_url"].startswith("data:image/png;base64,iVBOR")
    assert "AAAA" not in parts[2]["text"]
    assert "file:///a" in parts[3]["text"]
    assert parts[4]["text"] == "B"


async def test_errors_that_a_server_reports_are_for_the_model():
    async with session("rejects") as client:
        answer = await client.post("/act", json={})
    assert (answer.status_code, answer.text) == (422, "Error: the argument x is missing")


@pytest.mark.parametrize("kind", ["banner", "floods"])
async def test_stray_output_does_not_matter(kind):
    async with session(kind) as client:
        assert (await client.post("/act", json={})).text == "{}"


@pytest.mark.parametrize(
    ("kind", "problem", "settings"),
    [
        ("hangs", "no answer within 0.5 s: the tool 'act' (tool_timeout_s)", {"tool_timeout_s": 0.5}),
        ("dies", "its exit code is 1; the database is gone", {}),
        ("closes", "it closed its output", {}),
        ("long line", "it sent a message of more than 2,097,152 bytes", {}),
        ("endless line", "it sent a message of more than 2,097,152 bytes", {}),
        ("endless lines", "it sent more than 10,000 lines in answer to one request", {}),
        ("endless messages", "it sent more than 10,000 lines in answer to one request", {}),
        ("large", "it sent a message of more than 2,097,152 bytes", {}),
        ("wrong", "the tool 'act'", {}),
    ],
)
async def test_tool_that_breaks_fails_the_rollout(kind, problem, settings):
    async with session(kind, **settings) as client:
        with pytest.raises(EnvironmentFailed) as failed:
            await client.post("/act", json={})
    assert "mcp_servers.s0: " in str(failed.value)
    assert problem in str(failed.value)


@pytest.mark.parametrize(
    ("server", "problem", "settings"),
    [
        (stub("silent"), "no answer within 0.5 s: its start (start_timeout_s)", {"start_timeout_s": 0.5}),
        (stub("exits"), "its exit code is 1; no such option", {}),
        (stub("pages"), "has more than 100 pages", {}),
        (stub("schema"), "tools.0.inputSchema.properties", {}),
        ("no-such-program --now", "the program 'no-such-program' was not found", {}),
    ],
)
async def test_server_that_cannot_be_used_fails_the_rollout(server, problem, settings):
    with pytest.raises(EnvironmentFailed) as failed:
        async with rollout(served({"bad": server, "good": stub("works")}, **settings), **ROW):
            pass
    assert str(failed.value).startswith("mcp_servers.bad: ")
    assert problem in str(failed.value)


async def test_secrets_are_in_no_result_and_in_no_failure():
    key = {"API_KEY": "sk-123456"}
    async with serving(served({"s": stub("secret", env=key)})) as client:
        await client.post("/seed_session", json=FULL_ROW)
        assert (await client.post("/act", json={})).text == "the key is …"
    with pytest.raises(EnvironmentFailed, match=r"my key is …$"):
        async with rollout(served({"s": stub("exits", env=key)}), **ROW):
            pass


def folders():
    return set(Path(tempfile.gettempdir()).glob("nemo_gym-mcp-*"))


async def test_process_that_stays_is_killed_with_its_folder():
    before = folders()
    async with serving(served({"s": stub("stays")})) as client:
        await client.post("/seed_session", json=FULL_ROW)
        (pid,) = [int((each / "pid").read_text()) for each in folders() - before if (each / "pid").exists()]
        await client.post("/close_session")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not [each for each in folders() - before if (each / "pid").exists()]


async def test_two_rollouts_have_processes_and_files_of_their_own():
    server = make_server(McpToolsServer)
    async with serving(server) as one, serving(server) as other:
        await one.post("/seed_session", json={**FULL_ROW, "files": {"notes.txt": "a\n"}})
        await other.post("/seed_session", json=FULL_ROW)
        await one.post("/add_note", json={"text": "b"})
        assert (await one.post("/list_notes", json={})).text == "a\nb"
        assert (await other.post("/list_notes", json={})).text == "There are no notes."
        for client in (one, other):
            await client.post("/close_session")


@pytest.mark.parametrize(
    ("row", "settings", "problem"),
    [
        ({"expected_answer": None}, {}, "neither expected_answer nor expected_calls"),
        ({"mcp_servers": {"t": "x"}}, {}, "rows_may_add_servers: true"),
        ({"mcp_servers": {"s": "x"}}, {"rows_may_add_servers": True}, "mcp_servers.s is in the config, too"),
        ({}, {"mcp_servers": {}}, "neither the config nor the row has mcp_servers"),
        ({"files": {"../a": "x"}}, {}, "'../a' is not a path in the rollout's folder"),
        ({"files": {"/etc/a": "x"}}, {}, "'/etc/a' is not a path in the rollout's folder"),
        ({"files": {"": "x"}}, {}, "'' is not a path"),
    ],
)
async def test_invalid_row_is_reported(row, settings, problem):
    server = make_server(McpToolsServer, **{"mcp_servers": {"s": stub("works")}, **settings})
    with pytest.raises(InvalidTask) as failed:
        async with rollout(server, **{**ROW, **row}):
            pass
    assert problem in str(failed.value)


async def test_row_may_add_servers_if_the_config_allows_it():
    server = served({"s": stub("works")}, rows_may_add_servers=True)
    async with serving(server) as client:
        await client.post("/seed_session", json={**FULL_ROW, "mcp_servers": {"t": stub("changes")}})
        assert await names_of(client) == ["s__act", "t__act"]
        await client.post("/close_session")


@pytest.mark.parametrize(
    "wrong",
    [{}, {"command": ["a"], "url": "http://a"}, {"url": "ftp://a"}, {"command": ["a"], "headers": {"a": "b"}},
     {"url": "http://a", "env": {"a": "b"}}, {"url": "http://a", "sandbox": True}, {"command": []}],
)  # fmt: skip
def test_invalid_server_is_rejected(wrong):
    with pytest.raises(ValueError, match="McpServer"):
        McpServer.model_validate(wrong)


def test_server_may_be_a_text():
    assert McpServer.model_validate("npx -y 'a b'").command == ["npx", "-y", "a b"]
    assert McpServer.model_validate("http://a/mcp").url == "http://a/mcp"


@pytest.mark.needs_bubblewrap
def test_sandboxed_process_sees_only_its_folder(tmp_path):
    tmp_path.chmod(0o777)
    look = f"pwd; touch a; ls; test -e {STUB} && echo visible; id -u"
    command = in_sandbox(["sh", "-c", look], str(tmp_path), Sandbox())
    shown = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    *seen, user = shown.stdout.split()
    assert seen == [str(tmp_path), "a"], shown.stderr
    assert user != "0"


@pytest.mark.needs_bubblewrap
async def test_server_works_in_a_sandbox():
    own = [] if PYTHON.startswith("/usr/") else [sys.base_prefix]
    sandbox = {"readable": [str(Path(STUB).parent), *own]}
    server = {"command": [PYTHON, "-S", STUB, "works"], "sandbox": sandbox}
    async with serving(served({"s": server})) as client:
        seeded = await client.post("/seed_session", json=FULL_ROW)
        assert seeded.status_code == 200, seeded.text
        assert (await client.post("/act", json={"a": 1})).text == '{"a": 1}'
        await client.post("/close_session")


def outputs(*results):
    items = []
    for name, arguments, result in results:
        made = call(name, **arguments)
        items += [made, {"type": "function_call_output", "call_id": made.call_id, "output": result}]
    return items


async def reward_of(conversation, **row):
    server = served({"s": stub("works")})
    response = reply("x").model_dump(mode="json")
    output = [each if isinstance(each, dict) else each.model_dump(mode="json") for each in conversation]
    for number, item in enumerate(output):
        if "call_id" in item:
            item["call_id"] = f"call_{number // 2}"
    response["output"] = [*output, *reply(row.pop("said", "Answer: 3")).model_dump(mode="json")["output"]]
    async with serving(server) as client:
        graded = await client.post(
            "/verify", json={"responses_create_params": {"input": []}, **row, "response": response}
        )
    return graded.json()["reward"]


@pytest.mark.parametrize(
    ("said", "expected", "reward"),
    [("Answer: 3", 3, 1.0), ("3.0", "3", 1.0), ("Answer: **Paris**", "paris", 1.0), ("Answer: 4", 3, 0.0),
     ("", 3, 0.0), ("3 or 4", 3, 0.0)],
)  # fmt: skip
async def test_answers_are_graded(said, expected, reward):
    assert await reward_of([], said=said, expected_answer=expected) == reward


ADD = ("add", {"n": 1})


@pytest.mark.parametrize(
    ("results", "expected", "reward"),
    [
        ([(*ADD, "ok")], [ADD], 1.0),
        ([("add", {"n": 1.0}, "ok")], [ADD], 1.0),
        ([("look", {}, "nothing"), (*ADD, "ok")], [ADD], 1.0),
        ([("add", {"n": "one"}, "Error: no number"), (*ADD, "ok")], [ADD], 1.0),
        ([(*ADD, "ok"), (*ADD, "ok")], [ADD], 0.0),
        ([(*ADD, "ok"), (*ADD, "ok")], [ADD, ADD], 1.0),
        ([("add", {"n": 2}, "ok"), (*ADD, "ok")], [ADD, ("add", {"n": 2})], 1.0),
        ([("add", {"n": 2}, "ok")], [ADD], 0.0),
        ([(*ADD, "Error: full")], [ADD], 0.0),
        ([], [ADD], 0.0),
        ([(*ADD, "ok")], [ADD, ("drop", {})], 0.0),
    ],
)
async def test_calls_are_graded(results, expected, reward):
    calls = [{"name": name, "arguments": arguments} for name, arguments in expected]
    assert await reward_of(outputs(*results), expected_calls=calls) == reward
    assert await reward_of(outputs(*results), expected_calls=calls, expected_answer=4) == 0.0
