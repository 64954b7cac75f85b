"""An endpoint that speaks Anthropic's Messages API, in its own process. The model's name selects its behaviour.

It rejects what the real one rejects: a missing version or limit, empty texts, calls without results, and thinking that
was changed. `--port 0` prints the port; it serves until its input ends.
"""

import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.endpoint.program import NoteRequests, serve

KEY = "sk-ant-api03-very-secret"
THINKING = {"type": "thinking", "thinking": "Six times\nseven.", "signature": "c2lnbmF0dXJl=="}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl=="}
CALLS = [
    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}},
    {"type": "tool_use", "id": "toolu_2", "name": "get_time", "input": {"zone": "CET"}},
]
HOSTED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
STOPS = ("max_tokens", "refusal", "stop_sequence", "model_context_window_exceeded")
seen: list[dict] = []
flaky: dict[str, int] = {}


def text(text: str) -> dict:
    return {"type": "text", "text": text}


def error(status: int, message: str, **headers: str) -> Response:
    detail = {"type": TYPES.get(status, "api_error"), "message": message}
    body = {"type": "error", "error": detail, "request_id": "req_1"}
    return JSONResponse(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def problem_of(body: dict) -> str | None:
    """Return what the real endpoint would reject."""
    if "max_tokens" not in body:
        return "max_tokens: Field required"
    for index, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else [text(message["content"])]
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return f"messages.{index}: text content blocks must be non-empty"
        thoughts = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
        if any(block not in (THINKING, REDACTED) for block in thoughts):
            return f"messages.{index}: `thinking` blocks in the latest assistant message cannot be modified"
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if calls:
            following = body["messages"][index + 1]["content"] if index + 1 < len(body["messages"]) else []
            results = [block.get("tool_use_id") for block in following[: len(calls)]]
            if sorted(calls) != sorted(filter(None, results)):
                return f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after"
    return None


def answer_to(body: dict) -> dict:
    kind = body["model"].partition(":")[0]
    last = body["messages"][-1]["content"]
    said = last if isinstance(last, str) else "".join(block.get("text", block["type"]) for block in last)
    content, stop = [text(f"echo: {said}")], "end_turn"
    if kind == "thinks" and not any(block["type"] == "tool_result" for block in last):
        content, stop = [THINKING, REDACTED, text("Let me see."), *CALLS], "tool_use"
    elif kind in STOPS:
        content, stop = ([] if kind != "max_tokens" else content), kind
    elif kind == "mute":
        content, stop = [text("")], None
    elif kind == "pauses":
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        content, stop = ([HOSTED], "pause_turn") if turns == 0 else (content, "end_turn")
    elif kind == "never-ends":
        content, stop = [HOSTED], "pause_turn"
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{body['model']}-20250929",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 11,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 5,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 2},
            "service_tier": "standard",
        },
    }


def streamed(message: dict, fault: str = "") -> Response:
    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    events: list[dict] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        empty = {name: "" if isinstance(value, str) else {} for name, value in block.items()}
        kept = {name: block[name] for name in ("type", "id", "name", "data") if name in block}
        events.append({"type": "content_block_start", "index": index, "content_block": {**empty, **kept}})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas_of(block)]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7, "input_tokens": None}})
    events.append({"type": "message_stop"})
    if fault:
        detail = {"type": fault, "message": "Overloaded"}
        events = [*events[:4], {"type": "error", "error": detail, "request_id": "req_1"}]
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return PlainTextResponse("".join(lines), media_type="text/event-stream")


def deltas_of(block: dict) -> list[dict]:
    match block["type"]:
        case "text":
            half = len(block["text"]) // 2
            return [{"type": "text_delta", "text": part} for part in (block["text"][:half], block["text"][half:])]
        case "thinking":
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return [{"type": "thinking_delta", "thinking": block["thinking"]}, signature]
        case "tool_use" | "server_tool_use":
            written = json.dumps(block["input"])
            return [{"type": "input_json_delta", "partial_json": part} for part in ("", written[:5], written[5:])]
    return []


async def messages(request: Request) -> Response:
    body = await request.json()
    kind, _, argument = body["model"].partition(":")
    if KEY not in (request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer ")):
        return error(401, f"invalid x-api-key {request.headers.get('x-api-key')}")
    if "anthropic-version" not in request.headers:
        return error(400, "anthropic-version: header is required")
    if (problem := problem_of(body)) is not None:
        return error(400, problem)
    if kind == "status":
        return error(int(argument), f"This is always {argument}.")
    if kind == "too-long":
        return error(400, "prompt is too long: 210000 tokens > 200000 maximum")
    if kind == "not-json":
        return PlainTextResponse("<html></html>")
    message = answer_to(body)
    if kind == "flaky":  # flaky:<status>:<name of this series>, or flaky:<type of error in the stream>:<name>
        fault = argument.partition(":")[0]
        flaky[body["model"]] = flaky.get(body["model"], 0) + 1
        if flaky[body["model"]] == 1:
            return error(int(fault), "Later.", retry_after="0") if fault.isdecimal() else streamed(message, fault)
    if kind == "fails-in-stream":
        return streamed(message, argument)
    if kind == "odd":
        del message["usage"]
        message["content"].append({"type": "something_new", "data": 1})
    return streamed(message) if body.get("stream") else JSONResponse(message)


async def seen_requests(request: Request) -> Response:
    taken = list(seen)
    seen.clear()
    return JSONResponse(taken)


app = Starlette(routes=[Route("/v1/messages", messages, methods=["POST"]), Route("/seen", seen_requests)])
app.add_middleware(NoteRequests, seen=seen)


if __name__ == "__main__":
    serve(app)
