"""An endpoint with the odd completions of several providers, in its own process. The model's name selects one.

`--port 0` prints the port; it serves until its input ends.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.endpoint.program import NoteRequests, serve

CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "sea"}}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
HALF = {"prompt_tokens": 3, "completion_tokens": 4.0}
COMPLETIONS = {
    "plain": {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": USAGE},
    "bare": {"choices": [{"message": {"content": "Hi"}}]},
    "eos": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "eos"}], "usage": None},
    "half-usage": {
        "choices": [{"message": {"content": "Hi"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4.0},
    },
    "null-content": {"choices": [{"message": {"content": None, "tool_calls": None}, "finish_reason": "stop"}]},
    "no-content": {"choices": [{"message": {"tool_calls": [CALL]}, "finish_reason": "tool_use"}]},
    "same-ids": {"choices": [{"message": {"tool_calls": [{**CALL, "id": "0"}, {**CALL, "id": "0"}]}}]},
    "reasoning": {"choices": [{"message": {"content": "42", "reasoning": "6·7", "reasoning_details": []}}]},
    "reasoning_content": {"choices": [{"message": {"content": "42", "reasoning_content": "6·7"}}]},
    "think": {"choices": [{"message": {"content": "<think>6·7</think>42"}}]},
    "parts": {
        "choices": [
            {
                "message": {
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "6·7"}]},
                        {"type": "text", "text": "42"},
                    ]
                }
            }
        ]
    },
    "max_length": {"choices": [{"message": {"content": "It be"}, "finish_reason": "MAX_TOKENS"}]},
    "sensitive": {"choices": [{"message": {"content": ""}, "finish_reason": "sensitive"}]},
    "overflow": {"choices": [{"message": {"content": "It"}, "finish_reason": "model_context_window_exceeded"}]},
    "malformed": {
        "choices": [{"message": {"content": ""}, "finish_reason": "function_call_filter: MALFORMED_FUNCTION_CALL"}]
    },
    "unclear": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "because"}]},
    "mute": {"choices": [{"message": {"content": None}, "finish_reason": None}]},
    "network": {"choices": [{"message": {"content": "It be"}, "finish_reason": "network_error"}]},
    "error-200": {"error": {"message": "The upstream is overloaded.", "code": 429}},
    "broken-off": {
        "choices": [{"message": {"content": "It"}, "finish_reason": "error", "error": {"message": "Lost."}}]
    },
}
seen: list[dict] = []


async def chat_completions(request: Request) -> Response:
    body = await request.json()
    if body["model"] == "busy":
        return JSONResponse({"error": {"message": "Rate limit reached"}}, 429, {"retry-after": "0"})
    return JSONResponse(COMPLETIONS[body["model"]])


async def responses(request: Request) -> Response:
    body = await request.json()
    part = {"type": "output_text", "text": "Hi", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return JSONResponse({"id": "resp_1", "object": "response", "output": [message], "seen_model": body["model"]})


async def seen_requests(request: Request) -> Response:
    taken = list(seen)
    seen.clear()
    return JSONResponse(taken)


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/seen", seen_requests),
    ]
)
app.add_middleware(NoteRequests, seen=seen)


if __name__ == "__main__":
    serve(app)
