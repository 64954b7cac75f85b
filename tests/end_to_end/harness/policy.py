"""A chat endpoint with token ids, for a program that calls a tool, uses its shell, and answers.

If a request offers no tools, the model writes its action as text, and then repeats the last message.

Each character is a token. `python policy.py` prints its port, then serves until its input ends. `GET /sampled` lists
the prompt, the sampled tokens and their log-probabilities of each call.
"""

from __future__ import annotations

import json
import random

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.capture.tokens.policy import encode, models, text_of
from tests.endpoint.program import serve

calls: list[dict] = []
TURNS = [("get_weather", {"city": "Porto"}), ("shell", {"command": "cat task.md > seen.txt"})]


def written(message: dict) -> str:
    tools = "".join(f"[{each['function']['name']} {each['function']['arguments']}]"
                    for each in message.get("tool_calls") or ())  # fmt: skip
    return f"{text_of(message)}{tools}"


async def chat_completions(request: Request) -> JSONResponse:
    body = await request.json()
    messages = body["messages"]
    results = [each for each in messages if each["role"] == "tool"]
    message: dict = {"role": "assistant", "content": None}
    if not body.get("tools"):
        is_first = [each["role"] for each in messages] == ["system", "user"]
        message["content"] = "ACTION Porto" if is_first else text_of(messages[-1])
    elif len(results) < len(TURNS):
        name, arguments = TURNS[len(results)]
        function = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call_{len(messages)}", "type": "function", "function": function}]
    else:
        message["content"] = text_of(results[0])
    prompt = encode("".join(f"<{each['role']}>{written(each)}" for each in messages) + "<assistant>")
    sampled = encode(written(message))
    log_probs = [-random.random() for _ in sampled]
    calls.append({"prompt": prompt, "sampled": sampled, "log_probs": log_probs})
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


async def sampled_so_far(request: Request) -> JSONResponse:
    return JSONResponse(calls)


if __name__ == "__main__":
    routes = [
        Route("/v1/models", models),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/sampled", sampled_so_far),
    ]
    serve(Starlette(routes=routes))
