"""A program that lets the model call tools in one of the three dialects: `python talk.py DIALECT`."""

import json
import os
import sys
import urllib.request
from itertools import count
from pathlib import Path

TURNS = 4
IDS = count(1)
CHAT, MESSAGES, RESPONSES = "chat", "messages", "responses"
PATHS = {CHAT: "/chat/completions", MESSAGES: "/v1/messages", RESPONSES: "/responses"}
LIMITS = {CHAT: "max_tokens", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}
FORCED = {CHAT: "required", MESSAGES: {"type": "any"}, RESPONSES: "required"}


def post(url, body):
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
        return json.load(reply)


def mcp(method, **params):
    body = {"jsonrpc": "2.0", "id": next(IDS), "method": method, "params": params}
    return post(os.environ["NEMO_GYM_MCP_URL"], body)["result"]


def tool_in(dialect, listed):
    name, about, schema = listed["name"], listed.get("description") or "", listed["inputSchema"]
    if dialect == MESSAGES:
        return {"name": name, "description": about, "input_schema": schema, "strict": True}
    function = {"name": name, "description": about, "parameters": schema, "strict": True}
    return {"type": "function", "function": function} if dialect == CHAT else {"type": "function", **function}


def calls_in(dialect, answer):
    """Return what the model said, as the next request repeats it, and its calls: id, name, arguments."""
    if dialect == CHAT:
        message = answer["choices"][0]["message"]
        found = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
        return [message], [(key, each["name"], json.loads(each["arguments"])) for key, each in found]
    if dialect == MESSAGES:
        found = [block for block in answer["content"] if block["type"] == "tool_use"]
        said = [{"role": "assistant", "content": answer["content"]}]
        return said, [(each["id"], each["name"], each["input"]) for each in found]
    found = [item for item in answer["output"] if item["type"] == "function_call"]
    return answer["output"], [(each["call_id"], each["name"], json.loads(each["arguments"])) for each in found]


def results_in(dialect, results):
    if dialect == CHAT:
        return [{"role": "tool", "tool_call_id": key, "content": text} for key, text in results]
    if dialect == MESSAGES:
        blocks = [{"type": "tool_result", "tool_use_id": key, "content": text} for key, text in results]
        return [{"role": "user", "content": blocks}]
    return [{"type": "function_call_output", "call_id": key, "output": text} for key, text in results]


def main(dialect):
    base = os.environ["ANTHROPIC_BASE_URL" if dialect == MESSAGES else "OPENAI_BASE_URL"]
    tools = [tool_in(dialect, each) for each in mcp("tools/list")["tools"] if each["name"] == "turn"]
    history = [{"role": "user", "content": Path("task.md").read_text()}]
    for _ in range(TURNS):
        asked = {"model": os.environ["NEMO_GYM_MODEL"], "tools": tools, "tool_choice": FORCED[dialect]}
        asked |= {"input" if dialect == RESPONSES else "messages": history, LIMITS[dialect]: 200}
        said, calls = calls_in(dialect, post(base + PATHS[dialect], asked))
        results = []
        for key, name, arguments in calls:
            content = mcp("tools/call", name=name, arguments=arguments)["content"]
            results.append((key, content[0]["text"]))
        history += said + results_in(dialect, results)


if __name__ == "__main__":
    main(sys.argv[1])
