"""Tools of MCP servers join those of any environment: `mcp_servers` in its block, or in a row."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from nemo_gym import BaseVerifyRequest, EnvironmentFailed, InvalidTask, SessionState, SimpleResourcesServer, tool
from nemo_gym.errors import ConfigError
from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.run_record import read_record
from nemo_gym.testing import FakeModel, call, make_server, run, serving

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is an extra: pip install 'nemo-gym[mcp]' 'mcp>=2'")

from responses_api_agents.simple_agent.app import SimpleAgent

REPOSITORY = Path(__file__).parents[2]
STUB = REPOSITORY / "resources_servers" / "mcp_tools" / "tests" / "stub_child.py"
SDK_SERVER = '''
import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("counter")
count = 0


@server.tool()
def add(by: int) -> str:
    """Add to the counter."""
    global count
    count += by
    return f"The counter of {os.getpid()} is at {count}."


server.run("stdio")
'''


class Counter(SessionState):
    count: int = 0


class CounterServer(SimpleResourcesServer):
    @tool
    async def act(self, by: int, counter: Counter) -> str:
        """Add to the counter."""
        counter.count += by
        return f"own {counter.count}"

    async def verify(self, body: BaseVerifyRequest, counter: Counter) -> float:
        return float(counter.count == 2)


class CatchAllServer(CounterServer):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/{name}")(self.any_tool)
        return app

    async def any_tool(self, name: str) -> str:
        return f"own {name}"


def stub(kind):
    return {"command": [sys.executable, "-S", str(STUB), kind]}


def agent_with(model, cls=CounterServer, **settings):
    environment = make_server(cls, name="counter", **settings)
    about = {"type": "resources_servers", "name": "counter"}
    return make_server(SimpleAgent, model=model, servers=[environment], resources_server=about)


def outputs_of(graded):
    return [item.output for item in graded.response.output if item.type == "function_call_output"]


def offered_to(model):
    return [[each["name"] for each in request["tools"]] for request in model.requests]


async def test_both_kinds_of_tools_are_offered_and_graded():
    model = FakeModel([call("act", by=2), call("s__act", n=1), "done"])
    graded = await run(agent_with(model, mcp_servers={"s": stub("works")}))
    assert graded.reward == 1.0
    assert offered_to(model) == [["act", "s__act"]] * 3
    assert outputs_of(graded) == ["own 2", '{"n": 1}']


async def test_tools_of_the_row_are_kept_and_their_names_are_taken():
    model = FakeModel([call("a_b"), call("act"), call("s__a_b"), "done"])
    listed = [{"type": "function", "name": "a_b", "parameters": {}, "strict": False}]
    row = {"responses_create_params": {"input": "?", "tools": listed}}
    graded = await run(agent_with(model, CatchAllServer, mcp_servers={"s": stub("names")}), **row)
    assert graded.reward == 0.0
    assert {"a_b", "s__a_b"} <= {*offered_to(model)[0]}
    assert outputs_of(graded)[0] == '"own a_b"'
    assert outputs_of(graded)[2] == "{}"


async def test_changed_list_of_tools_reaches_the_model():
    model = FakeModel([call("s__act"), call("act_1"), "done"])
    await run(agent_with(model, mcp_servers={"s": stub("changes")}))
    assert offered_to(model) == [["act", "s__act"], ["act", "s__act", "act_1"], ["act", "s__act", "act_2"]]


async def test_row_adds_servers_if_the_block_allows_it():
    model = FakeModel([call("t__act", n=1), "done"])
    graded = await run(agent_with(model, rows_may_add_servers=True), mcp_servers={"t": stub("works")})
    assert outputs_of(graded) == ['{"n": 1}']
    # Without servers, all is as usual.
    plain = FakeModel([call("act", by=2), "done"])
    assert (await run(agent_with(plain, rows_may_add_servers=True))).reward == 1.0


@pytest.mark.parametrize(
    ("settings", "servers", "said"),
    [
        ({"mcp_servers": {"s": stub("works")}}, {"t": "x"}, "Set rows_may_add_servers: true if you trust its rows"),
        ({"rows_may_add_servers": True}, {"t": 3}, "the row's mcp_servers.t: "),
        ({"mcp_servers": {"s": stub("works")}, "rows_may_add_servers": True}, {"s": "x"}, "is in the config, too"),
    ],
)
async def test_row_that_must_not_add_servers_fails(settings, servers, said):
    with pytest.raises(InvalidTask) as failed:
        await run(agent_with(FakeModel(["done"]), **settings), mcp_servers=servers)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("dies", {}, "its exit code is 1; the database is gone"),
        ("hangs", {"mcp_limits": {"tool_timeout_s": 0.5}}, "no answer within 0.5 s: the tool 'act'"),
        ("exits", {}, "its exit code is 1; no such option"),
        ("silent", {"mcp_limits": {"start_timeout_s": 0.5}}, "no answer within 0.5 s: its start"),
    ],
)
async def test_broken_server_fails_the_rollout_and_earns_no_reward(kind, settings, said):
    model = FakeModel([call("act", by=2), call("s__act"), "done"])
    with pytest.raises(EnvironmentFailed) as failed:
        await run(agent_with(model, mcp_servers={"s": stub(kind)}, **settings))
    assert "mcp_servers.s: " in str(failed.value)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mcp_servers": {"s": {"url": "ftp://a"}}}, "mcp_servers.s.url: "),
        ({"mcp_servers": {"s": {}}}, "mcp_servers.s: an MCP server has either a `command` or a `url`"),
        ({"rows_may_add_servers": True, "mcp_limits": {"tool_timeout": 1}}, "mcp_limits.tool_timeout: "),
    ],
)
async def test_unusable_settings_are_rejected_at_start(settings, said):
    with pytest.raises(ConfigError, match="counter: ") as failed:
        async with serving(make_server(CounterServer, name="counter", **settings)):
            pass
    assert said in str(failed.value)


async def test_each_rollout_has_its_own_process_until_it_is_graded(tmp_path):
    (tmp_path / "server.py").write_text(SDK_SERVER)
    servers = {"sdk": {"command": [sys.executable, str(tmp_path / "server.py")]}}
    models = [FakeModel([call("add", by=2), call("add", by=3), "done"]) for _ in range(2)]
    agent = agent_with(models[0], mcp_servers=servers), agent_with(models[1], mcp_servers=servers)
    graded = await asyncio.gather(*map(run, agent))
    said = [outputs_of(each) for each in graded]
    assert [each[1].rpartition(" is at ")[2] for each in said] == ["5.", "5."]
    pids = {int(each[0].split()[3]) for each in said}
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
def test_config_of_a_shipped_environment_gets_tools(workplace):
    server = f'[{sys.executable}, -S, "{STUB}", works]'
    workplace.write(
        "more.yaml",
        "example_session_state_mgmt:\n  resources_servers:\n    example_session_state_mgmt:\n"
        f"      mcp_servers: {{s: {{command: {server}}}}}\n",
    )
    done = workplace.run(
        "ng", "eval", "run", "--resources-server", "example_session_state_mgmt", "--config", "more.yaml",
        "--model-type", "sample_model", "--split", "example", "--output", "out.jsonl", "--head_server.port", "0",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert read_record(workplace.folder / "out_run.json").outcomes.failed == {}
    rows = list(read_rows(workplace.folder / "out.jsonl"))
    assert rows
    misspelt = workplace.run(
        "ng", "env", "validate", "--resources-server", "example_session_state_mgmt", "--model-type", "sample_model",
        "--example_session_state_mgmt.resources_servers.example_session_state_mgmt.mcp_server", "{s: x}",
    )  # fmt: skip
    assert "Did you mean 'mcp_servers'?" in misspelt.err
