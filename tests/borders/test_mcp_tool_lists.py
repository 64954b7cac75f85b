"""`simple_agent` offers the tools that an environment lists for the session, and notices changes."""

import sys
from pathlib import Path

import pytest

from nemo_gym.testing import FakeModel, call, make_server, run

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is an extra: pip install 'nemo-gym[mcp]' 'mcp>=2'")

from resources_servers.mcp_tools.app import McpToolsServer
from responses_api_agents.simple_agent.app import SimpleAgent

STUB = Path(__file__).parent.parent.parent / "resources_servers" / "mcp_tools" / "tests" / "stub_child.py"


def agent_with(model, kind):
    servers = {"s": {"command": [sys.executable, "-S", str(STUB), kind]}}
    environment = make_server(McpToolsServer, mcp_servers=servers)
    about = {"type": "resources_servers", "name": "mcp_tools"}
    return make_server(SimpleAgent, model=model, servers=[environment], resources_server=about)


async def test_changed_list_of_tools_reaches_the_model():
    model = FakeModel([call("act"), call("act_1"), "Answer: 3"])
    graded = await run(agent_with(model, "changes"), expected_answer=3, expected_calls=[{"name": "act_1"}])
    assert graded.reward == 1.0
    offered = [[tool["name"] for tool in request["tools"]] for request in model.requests]
    assert offered == [["act"], ["act", "act_1"], ["act", "act_2"]]


async def test_tools_of_a_row_replace_the_listed_ones():
    model = FakeModel([call("a_b", n=1), "Answer: 3"])
    tools = [{"type": "function", "name": "a_b", "parameters": {}, "strict": False}]
    graded = await run(
        agent_with(model, "names"), expected_answer=3, responses_create_params={"input": "?", "tools": tools}
    )
    assert graded.reward == 1.0
    assert [[tool["name"] for tool in request["tools"]] for request in model.requests] == [["a_b"]] * 2
    assert graded.response.output[1].output == '{"n": 1}'
