"""The client of the Agent Client Protocol, with agents that answer by a script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[1] / "programs/acp.py"
LIMIT_S = 100
AGENT = """
import json, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
print("starting", flush=True)
for line in sys.stdin:
    call = json.loads(line)
    if call.get("method") in ANSWERS:
        send(method="session/update", params={})
        for number, request in enumerate(REQUESTS.get(call["method"], ())):
            send(id=f"own-{number}", **request)
            open("answers.jsonl", "a").write(sys.stdin.readline())
        send(id=call["id"], **ANSWERS[call["method"]])
    else:
        sys.exit(3)
"""
HTTP = {"agentCapabilities": {"mcpCapabilities": {"http": True}}}
ANSWERS = {
    "initialize": {"result": HTTP},
    "session/new": {"result": {"sessionId": "s"}},
    "session/set_mode": {"result": {}},
    "authenticate": {"result": None},
    "session/prompt": {"result": {"stopReason": "end_turn"}},
}
OPTIONS = [{"optionId": f"{kind}!", "kind": kind} for kind in ("allow_always", "allow_once", "reject_once")]


def run(command, **more):
    return subprocess.run(command, **more, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def talked(folder, answers=None, requests=(), **env):
    """Run the client with an agent that gives these answers and makes these requests during its turn."""
    given = {**ANSWERS, **(answers or {})}
    about = f"ANSWERS = {given!r}\nREQUESTS = {{'session/prompt': {list(requests)!r}}}"
    (folder / "agent.py").write_text(about.replace("None", "{}") + AGENT)
    (folder / "task.md").write_text("Go on.")
    env = {**os.environ, "HOME": str(folder), **env}
    command = [sys.executable, str(CLIENT), f"{sys.executable} agent.py"]
    return run(command, cwd=folder, env=env)


def asking(kind, options=OPTIONS):
    call = {"toolCallId": "c", **({} if kind is None else {"kind": kind})}
    return {"method": "session/request_permission", "params": {"toolCall": call, "options": options}}


def sent(folder, method):
    messages = map(json.loads, (folder / "transcript.jsonl").read_text().splitlines())
    return [each["params"] for each in messages if each.get("method") == method]


def test_agent_gets_the_task_and_the_tools(tmp_path):
    done = talked(tmp_path, NEMO_GYM_MCP_URL="http://gateway/mcp", ACP_AUTH="key", ACP_MODE="ask")
    assert (done.returncode, done.stderr) == (0, "starting\n")
    server = {"type": "http", "name": "environment_", "url": "http://gateway/mcp", "headers": []}
    assert sent(tmp_path, "session/new") == [{"cwd": str(tmp_path), "mcpServers": [server]}]
    assert sent(tmp_path, "session/prompt") == [{"sessionId": "s", "prompt": [{"type": "text", "text": "Go on."}]}]
    assert sent(tmp_path, "authenticate") == [{"methodId": "key"}]
    assert sent(tmp_path, "session/set_mode") == [{"sessionId": "s", "modeId": "ask"}]


@pytest.mark.parametrize(
    ("allows", "kind", "options", "chosen"),
    [
        ("all", "edit", OPTIONS, "allow_once!"),
        ("read, edit", "edit", OPTIONS, "allow_once!"),
        ("read", "edit", OPTIONS, "reject_once!"),
        ("read", None, OPTIONS, "reject_once!"),
        ("other", None, OPTIONS[:1], "allow_always!"),
        ("read", "edit", OPTIONS[:2], None),
    ],
)
def test_permission_depends_on_the_kind_of_tool(tmp_path, allows, kind, options, chosen):
    done = talked(tmp_path, requests=[asking(kind, options)], ACP_ALLOWS=allows)
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "answers.jsonl").read_text())
    outcome = {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}
    assert answer == {"jsonrpc": "2.0", "id": "own-0", "result": {"outcome": outcome}}


def test_other_requests_are_rejected(tmp_path):
    assert talked(tmp_path, requests=[{"method": "terminal/create", "params": {}}]).returncode == 0
    error = json.loads((tmp_path / "answers.jsonl").read_text())["error"]
    assert error == {"code": -32601, "message": "terminal/create is not available"}


@pytest.mark.parametrize(
    ("answers", "env", "problem"),
    [
        ({"session/new": {"error": {"code": -32000, "message": "Log in", "data": "{\n}"}}}, {},
         "the agent rejected session/new: Log in { }"),
        ({"session/prompt": {"result": {"stopReason": "cancelled"}}}, {}, "the agent has cancelled its turn"),
        ({"initialize": {"result": {}}}, {"NEMO_GYM_MCP_URL": "http://gateway/mcp"},
         "the agent does not support MCP over HTTP, with which the environment offers its tools"),
        ({}, {"ACP_ALLOWS": "read,excute"},
         "ACP_ALLOWS: excute is not a kind of tools. Choose from delete, edit, execute, fetch, move, other, read, "
         "search, switch_mode, think, or all"),
    ],
)  # fmt: skip
def test_problems_are_named(tmp_path, answers, env, problem):
    done = talked(tmp_path, answers, **env)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, problem)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("exit 7", "exit code 7 before it answered initialize"),
        ("no-agent", "exit code 127 before it answered initialize, because its command was not found"),
    ],
)
def test_agent_that_ends_early_is_named(tmp_path, command, problem):
    command = [sys.executable, str(CLIENT), command]
    done = run(command, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"the agent ended with {problem}")
