"""A program without function calls: it reads actions from texts, answers with user messages, and asks for a title."""

import json
import os
import sys
import urllib.request
from pathlib import Path

ACTION = "ACTION "


def post(url, body):
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
        return json.load(reply)


def ask(messages):
    body = {"model": os.environ["NEMO_GYM_MODEL"], "messages": messages}
    return post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body)["choices"][0]["message"]["content"]


def main(task):
    messages = [{"role": "system", "content": "Act in text."}, {"role": "user", "content": task}]
    while True:
        said = ask(messages)
        messages.append({"role": "assistant", "content": said})
        if not said.startswith(ACTION):
            break
        called = {"name": "get_weather", "arguments": {"city": said.removeprefix(ACTION)}}
        answer = post(
            os.environ["NEMO_GYM_MCP_URL"], {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
        )
        messages.append({"role": "user", "content": answer["result"]["content"][0]["text"]})
    ask([{"role": "user", "content": f"Write a title for: {task}"}])


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text())
