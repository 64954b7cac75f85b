"""A small agent program: the model thinks, calls tools, sees their results, and answers.

The program uses only the standard library. It calls a chat completions API. Its tools are a shell in the working
folder and the tools of an MCP server, if there is one.
"""

import json
import os
import subprocess
import sys
import urllib.request
from itertools import count
from pathlib import Path

SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command in the working folder and read its output.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
COMMAND_S = 60
MCP, IDS = os.environ.get("NEMO_GYM_MCP_URL"), count(1)


def post(url, body):
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers["authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
        return json.load(reply)


def mcp(method, **params):
    answer = post(MCP, {"jsonrpc": "2.0", "id": next(IDS), "method": method, "params": params})
    return answer["result"]


def tools():
    listed = mcp("tools/list")["tools"] if MCP else []
    return [SHELL] + [
        {"type": "function", "function": {"name": each["name"], "description": each.get("description") or "",
                                          "parameters": each["inputSchema"]}}
        for each in listed
    ]  # fmt: skip


def result_of(call):
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
    if name == "shell":
        words = ["sh", "-c", arguments["command"]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        return f"{done.stdout}{done.stderr}(exit code {done.returncode})"
    content = mcp("tools/call", name=name, arguments=arguments)["content"]
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def main(task):
    messages, offered = [{"role": "user", "content": task}], tools()
    while True:
        body = {"model": os.environ["NEMO_GYM_MODEL"], "messages": messages, "tools": offered}
        said = post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body)["choices"][0]["message"]
        messages.append(said)
        if not said.get("tool_calls"):
            # The content is null if a model is cut off while it reasons.
            return said.get("content") or ""
        for call in said["tool_calls"]:
            try:
                result = result_of(call)
            except (ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
                result = f"Error: {error!r}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1]).read_text()) + "\n")
