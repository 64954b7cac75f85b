"""A chat endpoint with token ids that repairs `calc.py` with the tools that a coding agent offers.

It reads the file, edits it, runs its test, and ends with the test's output. For the task "Change nothing." it ends at
once. Each character is a token. `python policy.py` prints its port, then serves until its input ends. `GET /calls`
lists the offered tools, the prompt and the answer of each call.
"""

from __future__ import annotations

import json
import random
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.capture.tokens.policy import encode, models, text_of
from tests.endpoint.program import serve

Json = dict[str, Any]
WRONG, RIGHT = "return a - b", "return a + b"
RUN = "python3 test_calc.py && ls -A ~ && touch ~/left-'behind'"
"""Run the test, list what an earlier rollout may have left, and leave the file `left-behind`."""
PATHS = ("file_path", "filePath", "absolute_path", "path")
OLD, NEW = ("old_string", "oldString", "oldText"), ("new_string", "newString", "newText")
COMMANDS = ("command", "cmd")
READERS = ("Read", "read", "read_file")
EDITORS = ("Edit", "edit", "replace")
SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell", "terminal")
BLOCK = f"calc.py\n```python\n<<<<<<< SEARCH\n    {WRONG}\n=======\n    {RIGHT}\n>>>>>>> REPLACE\n```\n"
COMMANDS_FOR = {
    "Wait for ten minutes.": "python3 -c 'import time; time.sleep(600)'",
    "Kill your parent process.": "kill -9 $PPID",
}
"""Tasks whose only answer is one command, which is repeated."""
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
calls: list[Json] = []


def arguments_for(schema: Json, values: dict[tuple[str, ...], str]) -> Json:
    """Return the arguments that a tool's schema requires, each under the program's own name for it."""
    properties = schema["properties"]
    if isinstance(properties.get("edits"), dict) and "path" in properties:
        return {"path": values[PATHS], "edits": [{"oldText": values[OLD], "newText": values[NEW]}]}
    found: Json = {name: value for names, value in values.items() for name in names if name in properties}
    for name in set(schema.get("required") or ()) - set(found):
        kind = properties[name].get("type")
        defaults = {"boolean": False, "string": "Run the test", "number": 1, "integer": 1}
        found[name] = properties[name].get("enum", [defaults.get(kind)])[0]
    if properties.get("command", {}).get("type") == "array":
        found["command"] = ["sh", "-c", found["command"]]
    return found


def next_call(tools: dict[str, Json], results: int) -> tuple[str, Json] | None:
    """Return the next tool call, in the language of the program that offers these tools."""
    reader = next((name for name in READERS if name in tools), None)
    editor = next((name for name in EDITORS if name in tools), None)
    shell = next(name for name in SHELLS if name in tools)
    steps: list[tuple[str, dict[tuple[str, ...], str]]] = []
    if editor:
        steps += [(reader or editor, {PATHS: "/workspace/calc.py"})] if reader else []
        steps += [(editor, {PATHS: "/workspace/calc.py", OLD: WRONG, NEW: RIGHT})]
    else:
        steps += [(shell, {COMMANDS: f"sed -i 's/{WRONG}/{RIGHT}/' calc.py"})]
    steps += [(shell, {COMMANDS: RUN})]
    if results >= len(steps):
        return None
    name, values = steps[results]
    return name, arguments_for(tools[name], values)


def answer(body: Json) -> Json:
    """Return the message that a request gets."""
    messages = body["messages"]
    tools = {each["function"]["name"]: each["function"].get("parameters") for each in body.get("tools") or ()}
    texts = [text_of(each) for each in messages if each["role"] in ("user", "system")]
    task, shell = "".join(texts), next((name for name in SHELLS if name in tools), None)
    for words, command in COMMANDS_FOR.items():
        if words in task and shell is not None:
            return calling(messages, shell, arguments_for(tools[shell], {COMMANDS: command}))
    if weather := next((name for name in tools if name.endswith("get_weather")), None):
        results = [text_of(each) for each in messages if each["role"] == "tool"]
        return (
            said(results[-1])
            if results
            else calling(messages, weather, arguments_for(tools[weather], {("city",): "Porto"}))
        )
    ends_with_a_command = SUBMIT in task
    if "Change nothing." in task:
        return submitted(messages) if ends_with_a_command else said("I leave it as it is.")
    results = [each for each in messages if each["role"] == "tool"]
    if shell is None:
        is_first = not any(each["role"] == "assistant" and BLOCK in text_of(each) for each in messages)
        is_aider = "SEARCH/REPLACE" in task
        return said(BLOCK if is_aider and is_first else "Repair calc.py")
    call = next_call(tools, len(results))
    if call is not None:
        return calling(messages, *call)
    return submitted(messages) if ends_with_a_command else said(f"The test printed: {text_of(results[-1])}")


def said(text: str) -> Json:
    return {"role": "assistant", "content": text}


def calling(messages: list[Json], name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{len(messages)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def submitted(messages: list[Json]) -> Json:
    """Return the call with which mini-SWE-agent ends."""
    return calling(messages, "bash", {"command": f"echo {SUBMIT}"})


def written(message: Json) -> str:
    tools = "".join(f"[{each['function']['name']} {each['function']['arguments']}]"
                    for each in message.get("tool_calls") or ())  # fmt: skip
    return f"{text_of(message)}{tools}"


async def chat_completions(request: Request) -> JSONResponse:
    body = await request.json()
    message = answer(body)
    prompt = encode("".join(f"<{each['role']}>{written(each)}" for each in body["messages"]) + "<assistant>")
    sampled = encode(written(message))
    log_probs = [-random.random() for _ in sampled]
    names = [each["function"]["name"] for each in body.get("tools") or ()]
    calls.append({"tools": names, "body": body, "prompt": prompt, "sampled": sampled, "log_probs": log_probs})
    content = [{"token": f"token_id:{token}", "logprob": number, "bytes": [], "top_logprobs": []}
               for token, number in zip(sampled, log_probs, strict=True)]  # fmt: skip
    return JSONResponse(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                    "token_ids": sampled,
                    "logprobs": {"content": content},
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            "prompt_token_ids": prompt,
        }
    )


async def calls_so_far(request: Request) -> JSONResponse:
    return JSONResponse(calls)


if __name__ == "__main__":
    routes = [
        Route("/v1/models", models),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/calls", calls_so_far),
    ]
    serve(Starlette(routes=routes))
