"""The servers of MCP's authors, as installed by `make borders-mcp`."""

from pathlib import Path

import orjson
import pytest

from nemo_gym import EnvironmentFailed
from nemo_gym.testing import FakeModel, call, make_server, run, serving

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is an extra: pip install 'nemo-gym[mcp]' 'mcp>=2'")

from resources_servers.mcp_tools.app import McpToolsServer
from responses_api_agents.simple_agent.app import SimpleAgent

PROGRAMS = Path(__file__).parent.parent.parent / ".npm-mcp" / "node_modules" / ".bin"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the servers are missing: make borders-mcp"),
]
MEMORY = {"command": [str(PROGRAMS / "mcp-server-memory")], "env": {"MEMORY_FILE_PATH": "{scratch}/memory.jsonl"}}
FILES = {"command": [str(PROGRAMS / "mcp-server-filesystem"), "{scratch}"]}
EVERYTHING = {"command": [str(PROGRAMS / "mcp-server-everything")], "env": {"API_TOKEN": "sk-123456"}}
ADA = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["She lives in Lund."]}]}


async def played(servers, turns, **row):
    """Play a row with these turns. Return the graded row and the outputs of the calls."""
    about = {"type": "resources_servers", "name": "mcp_tools"}
    environment = make_server(McpToolsServer, mcp_servers=servers)
    agent = make_server(SimpleAgent, model=FakeModel(turns), servers=[environment], resources_server=about)
    graded = (await run(agent, **row)).model_dump(mode="json")
    return graded, [each["output"] for each in graded["response"]["output"] if each["type"] == "function_call_output"]


async def test_memory_begins_empty_and_is_graded_by_its_calls():
    turns = [call("create_entities", **ADA), call("search_nodes", query="Ada"), "Ada lives in Lund."]
    expected = [{"name": "create_entities", "arguments": ADA}]
    for _ in range(2):
        graded, outputs = await played({"memory": MEMORY}, turns, expected_calls=expected)
        assert graded["reward"] == 1.0
        assert orjson.loads(outputs[0])[0]["name"] == "Ada"
        assert len(orjson.loads(outputs[1])["entities"]) == 1


async def test_two_servers_of_a_kind_have_prefixes():
    turns = [call("a__create_entities", **ADA), call("b__read_graph"), "Answer: none"]
    graded, outputs = await played({"a": MEMORY, "b": {**MEMORY, "env": {"MEMORY_FILE_PATH": "{scratch}/b"}}}, turns,
                                   expected_answer="none")  # fmt: skip
    assert graded["reward"] == 1.0
    assert orjson.loads(outputs[1]) == {"entities": [], "relations": []}


async def test_files_of_a_row_are_read_and_nothing_else():
    turns = [call("read_text_file", path="plan/a.txt"), call("read_text_file", path="/etc/passwd"), "Answer: 17"]
    row = {"files": {"plan/a.txt": "Gate 17"}, "expected_answer": 17}
    graded, outputs = await played({"files": FILES}, turns, **row)
    assert graded["reward"] == 1.0
    assert outputs[0] == "Gate 17"
    assert outputs[1].startswith("Error: Access denied")


@pytest.mark.needs_bubblewrap
async def test_files_are_served_in_a_sandbox():
    sandbox = {"sandbox": {"readable": [str(PROGRAMS.parent)]}}
    turns = [call("write_file", path="a.txt", content="x"), call("list_directory", path="."), "Answer: a.txt"]
    graded, outputs = await played({"files": {**FILES, **sandbox}}, turns, expected_answer="a.txt")
    assert outputs[1] == "[FILE] a.txt"
    assert graded["reward"] == 1.0


async def test_everything_returns_images_errors_and_no_secret():
    turns = [
        call("get-sum", a=17, b=25),
        call("get-tiny-image"),
        call("get-env"),
        call("get-sum", a="x"),
        call("get-structured-content", location="Chicago"),
        call("get-resource-links"),
        call("trigger-long-running-operation", duration=1, steps=2),
        "Answer: 42",
    ]
    graded, outputs = await played({"everything": EVERYTHING}, turns, expected_answer=42)
    assert graded["reward"] == 1.0
    assert "42" in outputs[0]
    assert "input_image" in [part["type"] for part in outputs[1]]
    assert orjson.loads(outputs[2])["API_TOKEN"] == "…"
    assert outputs[3].startswith("Error: ")
    assert "temperature" in orjson.loads(outputs[4])
    assert "demo://resource" in outputs[5]
    assert outputs[6].startswith("Long running operation completed")
    assert "sk-123456" not in str(graded)


async def test_slow_tool_fails_the_rollout():
    server = make_server(McpToolsServer, mcp_servers={"everything": EVERYTHING}, tool_timeout_s=1)
    async with serving(server) as client:
        await client.post("/seed_session", json={"responses_create_params": {"input": []}, "expected_answer": 1})
        with pytest.raises(EnvironmentFailed, match="no answer within 1 s: the tool 'trigger-long-running-operation'"):
            await client.post("/trigger-long-running-operation", json={"duration": 60, "steps": 2})
        await client.post("/close_session")


def test_servers_command_is_run_and_checked(workplace):
    command = f"mcp:env MEMORY_FILE_PATH={{scratch}}/m.jsonl {PROGRAMS / 'mcp-server-memory'}"
    asked = {"responses_create_params": {"input": "Read the graph."}, "expected_calls": [{"name": "read_graph"}]}
    (workplace.folder / "tasks.jsonl").write_bytes(orjson.dumps(asked) + b"\n")
    run_it = ["eval", "run", "--from", command, "--model-type", "sample_model", "--output"]
    with_rows = workplace.run("ng", *run_it, "results/a.jsonl", "--input", "tasks.jsonl")
    assert with_rows.code == 0, with_rows.err
    own = workplace.run("ng", *run_it, "results/b.jsonl")
    assert own.code == 0, own.err
    (row,) = [orjson.loads(line) for line in (workplace.folder / "results/b.jsonl").read_bytes().splitlines()]
    assert row["expected_calls"] == [{"name": "read_graph"}]
    checked = workplace.run("ng", "env", "check", "--from", command)
    assert "promises kept" in checked.out
    assert checked.code == 0, checked.out
