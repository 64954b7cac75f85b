"""A client of the Agent Client Protocol (ACP). It gives an agent the task, and answers its requests for permission.

The program uses only the standard library, so that every sandbox with Python can run it. `python3 acp.py COMMAND`
starts the agent and reads the task from `task.md`. All messages are recorded in `TRANSCRIPT`.

- `ACP_AUTH`: the method with which the agent has to log in, if it needs one
- `ACP_MODE`: the mode of the session, if not the agent's default
- `ACP_ALLOWS`: `all`, or the kinds of tools that the agent may use without a user, such as `read,search,edit`
"""

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

VERSION = 1
METHOD_NOT_FOUND = -32601
NOT_FOUND = 127
END_S = 10
KINDS = {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}
TRANSCRIPT = Path.home() / "transcript.jsonl"
MCP = os.environ.get("NEMO_GYM_MCP_URL")


class Agent:
    """A running agent, with which messages are exchanged as lines of JSON."""

    def __init__(self, command, allows):
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, shell=True, stdin=pipe, stdout=pipe, start_new_session=True)
        self._allows = allows
        self._ids = count(1)

    def call(self, method, **params):
        """Return the result of a call. Answer the agent's own calls until it arrives."""
        call_id = next(self._ids)
        self._send(id=call_id, method=method, params=params)
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                # Some agents also print log lines.
                sys.stderr.buffer.write(line)
                continue
            self._record(message)
            if "method" in message:
                self._answer(message)
            elif message.get("id") == call_id:
                if "error" in message:
                    error = message["error"]
                    # The harness reports one line.
                    reason = " ".join(f"{error.get('message')} {error.get('data') or ''}".split())
                    sys.exit(f"the agent rejected {method}: {reason}")
                return message.get("result") or {}
        code = self._process.wait(END_S)
        hint = ", because its command was not found" if code == NOT_FOUND else ""
        sys.exit(f"the agent ended with exit code {code} before it answered {method}{hint}")

    def end(self):
        """End the agent at once, because some agents go on to call the model, for example to suggest the next task."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S)

    def _answer(self, message):
        if "id" not in message:
            return
        if message["method"] == "session/request_permission":
            self._send(id=message["id"], result={"outcome": self._outcome(message["params"])})
        else:
            error = {"code": METHOD_NOT_FOUND, "message": f"{message['method']} is not available"}
            self._send(id=message["id"], error=error)

    def _outcome(self, params):
        is_allowed = self._allows == {"all"} or (params["toolCall"].get("kind") or "other") in self._allows
        verb = "allow" if is_allowed else "reject"
        options = {option["kind"]: option["optionId"] for option in params["options"]}
        chosen = options.get(f"{verb}_once", options.get(f"{verb}_always"))
        return {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}

    def _send(self, **message):
        message = {"jsonrpc": "2.0", **message}
        self._record(message)
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # The caller reports that the agent has ended.
            pass

    def _record(self, message):
        with TRANSCRIPT.open("a") as file:
            file.write(json.dumps(message) + "\n")


def main():
    allows = {each.strip() for each in os.environ.get("ACP_ALLOWS", "all").split(",")}
    if unknown := sorted(allows - KINDS - {"all"}):
        sys.exit(
            f"ACP_ALLOWS: {', '.join(unknown)} is not a kind of tools. Choose from {', '.join(sorted(KINDS))}, or all"
        )
    agent = Agent(sys.argv[1], allows)
    about = agent.call("initialize", protocolVersion=VERSION, clientCapabilities={})
    if method := os.environ.get("ACP_AUTH"):
        agent.call("authenticate", methodId=method)
    servers = []
    if MCP:
        if not about.get("agentCapabilities", {}).get("mcpCapabilities", {}).get("http"):
            sys.exit("the agent does not support MCP over HTTP, with which the environment offers its tools")
        # Some agents join the names of server and tool with one underscore. After two, the tool's name is recognized.
        servers.append({"type": "http", "name": "environment_", "url": MCP, "headers": []})
    session = agent.call("session/new", cwd=os.getcwd(), mcpServers=servers)["sessionId"]
    if mode := os.environ.get("ACP_MODE"):
        agent.call("session/set_mode", sessionId=session, modeId=mode)
    task = [{"type": "text", "text": Path("task.md").read_text()}]
    ended = agent.call("session/prompt", sessionId=session, prompt=task).get("stopReason")
    agent.end()
    if ended == "cancelled":
        sys.exit("the agent has cancelled its turn")


if __name__ == "__main__":
    main()
