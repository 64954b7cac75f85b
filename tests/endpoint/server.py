"""An OpenAI-compatible endpoint in its own process whose behaviour depends on the model name.

`python tests/endpoint/server.py --port 0` prints its port, then serves until its input ends. `GET /seen` lists the
received requests as `{path, headers, body}`; `DELETE /seen` clears the list.
"""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.endpoint.program import NoteRequests, serve

seen: list[dict] = []
failures_left: dict[str, int] = {}
CONTEXT = 4096
CONTEXT_LENGTH = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages."
)
LIMIT_ERRORS = [
    "max_tokens must be at least 1, got -5.",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
]
"""Messages of vLLM about a full context, of OpenAI about the field, and of DeepSeek about its value."""
WEATHER = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
CALLS = [
    {"id": "call_1", "type": "function", "function": WEATHER},
    {"id": "call_2", "type": "function", "function": {"name": "get_time", "arguments": '{"zone": "CET"}'}},
]
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
MESSAGES = {
    "tool-call": {"content": None, "tool_calls": CALLS[:1]},
    "parallel": {"content": "Let me see.", "tool_calls": CALLS},
    "reasoning-content": {"content": "42", "reasoning_content": "Six times seven."},
    "reasoning": {"content": "42", "reasoning": "Six times seven."},
    "think": {"content": "<think>Six times seven.</think>\n\n42"},
    "length": {"content": "<think>I begin with"},
    "refusal": {"content": None, "refusal": "I will not."},
    "odd": {
        "content": [{"type": "text", "text": "in parts"}],
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
        "annotations": None,
        "audio": None,
    },
}

TEXTS = {
    "think": "<think>Six times seven.</think>\n\n42",
    "opens": "Six times seven.</think>42",
    "opens-length": "I begin with",
    "length": "<think>I begin with",
    "tool-call": f"<tool_call>\n{CALL}\n</tool_call>",
    "parallel": f"<think>A <tool_call>?</think>\n\nLet me see.\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}",
    "bad-call": "<tool_call>{broken</tool_call>",
    "long-integer": f'<tool_call>{{"name": "f", "arguments": {{"number": {10**30 + 1}}}}}</tool_call>',
}
"""Texts of `/completions`, which are as the model writes them."""
CONTINUED = "One part, and another one."
"""The text that the model `aborts-after` returns in parts."""


def error(status: int, message: str, **headers: str) -> Response:
    body = {"error": {"message": message, "type": "error", "param": None, "code": status}}
    return JSONResponse(body, status, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def misbehave(model: str, request: Request) -> Response | None:
    """Return the failure that the model name asks for, or None if the call should succeed."""
    kind, _, argument = model.partition(":")
    if kind == "flaky":  # flaky:<status>:<how often>:<name of this series>
        status, times, _ = argument.split(":")
        failures_left.setdefault(model, int(times))
        if failures_left[model] > 0:
            failures_left[model] -= 1
            return error(int(status), "Come back later.", Retry_After="0.05")
    elif kind == "status":
        return error(int(argument), f"This is always {argument}.")
    elif kind == "too-long":
        return error(400, CONTEXT_LENGTH)
    elif kind == "bad-limit":  # bad-limit:<number of the message>
        return error(400, LIMIT_ERRORS[int(argument)])
    elif kind == "bad-request":
        return error(400, "Unknown field 'spam'.")
    elif kind == "tells-key":
        return error(401, f"Incorrect API key provided: {request.headers['authorization'].removeprefix('Bearer ')}.")
    elif kind == "quotes-headers":
        return error(401, "; ".join(f"{name}: {value}" for name, value in request.headers.items()))
    elif kind == "slow":
        await asyncio.sleep(float(argument))
    elif kind == "not-json":
        return PlainTextResponse("<html>Welcome to the hotel's network</html>")
    elif kind == "no-choice":
        return JSONResponse({"id": "x", "object": "chat.completion", "created": 1, "model": model, "choices": []})
    elif kind == "hang-up":

        async def half_an_answer():
            yield b'{"id": '
            raise ConnectionAbortedError("this endpoint hangs up")

        return StreamingResponse(half_an_answer())
    return None


def last_text(messages: list[dict]) -> str:
    content = messages[-1].get("content") if messages else ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def tokens_of(text: str) -> list[int]:
    return [ord(char) for char in text]


async def chat_completions(request: Request) -> Response:
    body = await request.json()
    model, kind = body["model"], body["model"].partition(":")[0]
    failed = await misbehave(model, request)
    if failed is not None:
        return failed
    message = {"role": "assistant", **MESSAGES.get(kind, {"content": f"echo: {last_text(body['messages'])}"})}
    finish = "tool_calls" if message.get("tool_calls") else "length" if kind == "length" else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }
    if kind == "abort":
        choice["finish_reason"] = "abort"
    if kind == "weights":  # weights:<version>, reported as SGLang does
        completion["metadata"] = {"weight_version": model.partition(":")[2]}
    if kind == "no-usage":
        del completion["usage"]
    if body.get("logprobs"):
        generated = tokens_of(message["content"] or "")
        choice["logprobs"] = {
            "content": [
                {
                    "token": f"token_id:{token}" if body.get("return_tokens_as_token_ids") else chr(token),
                    "logprob": -0.5,
                    "bytes": None,
                    "top_logprobs": [],
                }
                for token in generated
            ]
        }
        if body.get("return_token_ids") and kind in ("echo", "weights"):
            completion["prompt_token_ids"] = tokens_of(last_text(body["messages"]))
            choice["token_ids"] = generated
        if kind == "tokens-in-message":
            message |= {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-1.0, -2.0]}
            choice["logprobs"] = None
        if kind == "tokens-twice":
            prompt = tokens_of(last_text(body["messages"]))
            message |= {"prompt_token_ids": prompt, "generation_token_ids": generated}
            message["generation_log_probs"] = [-0.50000001] * len(generated)
            completion["prompt_token_ids"] = list(prompt)
            choice["token_ids"] = list(generated)
            # "tokens-twice:token_ids" changes one of the copies.
            damaged = {
                "prompt_token_ids": completion["prompt_token_ids"],
                "token_ids": choice["token_ids"],
                "generation_token_ids": message["generation_token_ids"],
                "generation_log_probs": message["generation_log_probs"],
            }.get(model.partition(":")[2])
            if damaged is not None:
                damaged[-1] = 1
        if kind == "tokens-missing":
            choice["logprobs"] = None
    return JSONResponse(completion)


async def completions(request: Request) -> Response:
    body = await request.json()
    model, kind, prompt = body["model"], body["model"].partition(":")[0], body["prompt"]
    limit = body.get("max_tokens", 16)
    failed = await misbehave(model, request)
    if failed is not None:
        return failed
    if len(prompt) + limit > CONTEXT:
        return error(400, CONTEXT_LENGTH)
    whole = TEXTS.get(kind, f"echo: {''.join(map(chr, prompt))}")
    aborts = kind == "abort"
    if kind == "aborts-after":  # aborts-after:<number of tokens>
        # Continue from the part of the text that is already at the end of the prompt.
        known, step = "".join(map(chr, prompt)), int(model.partition(":")[2])
        done = next(at for at in range(len(CONTINUED), -1, -1) if known.endswith(CONTINUED[:at]))
        whole = CONTINUED[done : done + step]
        aborts = done + step < len(CONTINUED)
    generated = tokens_of(whole[:limit])
    is_cut_off = kind in ("length", "opens-length") or len(whole) > limit
    choice = {
        "index": 0,
        "text": whole[:limit],
        "finish_reason": "abort" if aborts else "length" if is_cut_off else "stop",
        "logprobs": None,
    }
    if body.get("logprobs") is not None:
        named = [f"token_id:{each}" if body.get("return_tokens_as_token_ids") else chr(each) for each in generated]
        choice["logprobs"] = {
            "tokens": named,
            "token_logprobs": [-0.5] * len(generated),
            "top_logprobs": [{name: -0.5} for name in named],
            "text_offset": list(range(len(generated))),
        }
        if kind == "uneven-logprobs":
            choice["logprobs"]["token_logprobs"].pop()
    if body.get("return_token_ids"):
        choice |= {"prompt_token_ids": prompt, "token_ids": generated}
        if kind == "other-prompt":
            choice["prompt_token_ids"] = [*prompt, 1]
    return JSONResponse(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1700000000,
            "model": model,
            "choices": [choice] if kind != "no-choice" else [],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(generated),
                "total_tokens": len(prompt) + len(generated),
                "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
        }
    )


def failure_of(model: str) -> dict | None:
    """Return the error of a response to `failed:<error code>` or `failed:<error code>:<how often>:<series>`."""
    kind, *arguments = model.split(":")
    if kind != "failed":
        return None
    if len(arguments) > 1:
        failures_left.setdefault(model, int(arguments[1]))
        if failures_left[model] == 0:
            return None
        failures_left[model] -= 1
    return {"code": arguments[0], "message": "The model crashed."}


async def responses(request: Request) -> Response:
    body = await request.json()
    failed = await misbehave(body["model"], request)
    if failed is not None:
        return failed
    if body["model"].startswith("unfinished:"):  # unfinished:<status>
        status = body["model"].partition(":")[2]
        return JSONResponse({"id": "resp_1", "object": "response", "status": status, "output": [], "error": None})
    failure = failure_of(body["model"])
    if failure is not None:
        ended = {"id": "resp_1", "object": "response", "created_at": 1700000000, "model": body["model"], "output": []}
        return JSONResponse({**ended, "status": "failed", "error": failure})
    asked = body["input"] if isinstance(body["input"], str) else last_text(body["input"])
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "status": None},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": f"echo: {asked}", "annotations": [], "logprobs": []}],
        },
    ]
    if body["model"] == "tool-call":
        output[1:] = [{"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed", **WEATHER}]
    return JSONResponse(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1700000000,
            "model": body["model"],
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "temperature": body.get("temperature"),
            "usage": {
                "input_tokens": 11,
                "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 3},
                "total_tokens": 18,
            },
            "something_new": {"kept": True},
        }
    )


async def tokenize(request: Request) -> Response:
    body = await request.json()
    if body.get("model") == "no-tokenize":
        return Response("Not Found", status_code=404)
    # The chat template of some models opens the reasoning of the answer.
    opening = "<think>\n" if str(body.get("model")).startswith("opens") else ""
    tokens = tokens_of(last_text(body["messages"]) + opening)
    return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": CONTEXT})


async def detokenize(request: Request) -> Response:
    return JSONResponse({"prompt": "".join(map(chr, (await request.json())["tokens"]))})


async def models(request: Request) -> Response:
    response = JSONResponse({"object": "list", "data": [{"id": "echo", "object": "model"}]})
    response.set_cookie("tracked", "yes")
    return response


async def seen_requests(request: Request) -> Response:
    if request.method == "DELETE":
        seen.clear()
    return JSONResponse(seen)


async def moved(request: Request) -> Response:
    return RedirectResponse(f"/{request.path_params['path']}")


app = Starlette(
    routes=[
        Route("/v1/models", models),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/moved/{path:path}", moved, methods=["POST"]),
        Route("/seen", seen_requests, methods=["GET", "DELETE"]),
    ]
)
app.add_middleware(NoteRequests, seen=seen)


if __name__ == "__main__":
    serve(app)
