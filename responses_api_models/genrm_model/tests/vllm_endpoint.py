"""An endpoint like vLLM with a generative reward model, whose chat template raises for roles that it does not know.

The model name selects a fault. `--port 0` prints the port; it serves until its input ends. `GET /seen` lists bodies.
"""

import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.endpoint.program import serve

ROLES = ("system", "user", "assistant", "response_1", "response_2", "principle")
CONTEXT_LENGTH = 400
"""In words."""
VERDICT = '{"score_1": 4, "score_2": 2, "ranking": 2}'
MESSAGES = {
    "judge": {"content": VERDICT},
    "reasoning": {"content": VERDICT, "reasoning_content": "The first one answers the question."},
    "empty": {"content": None},
    "truncated": {"content": '{"score_1": 4, "sco'},
}
seen: list[dict] = []
starting = {"starting": 1, "down": 10**9}


def error(status: int, kind: str, message: str, param: str | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


def template_error(messages: list[dict]) -> str | None:
    """Return what the template raises, if it does."""
    roles = [message.get("role") for message in messages]
    for role in roles:
        if role not in ROLES:
            return f"Unexpected role: {role}"
    if roles[-1] not in ("user", "principle", "response_2"):
        return f"Conversation must end with response_2, not {roles[-1]}"
    return None


async def chat_completions(request: Request) -> Response:
    body = await request.json()
    seen.append(body)
    model, messages = body["model"], body["messages"]
    if starting.get(model, 0) > 0:
        starting[model] -= 1
        return Response(status_code=503)
    if model == "malformed":
        return PlainTextResponse('{"id": "chatcmpl-1", "choices": [', media_type="application/json")
    if model not in (*MESSAGES, "starting"):
        return error(404, "NotFoundError", f"The model `{model}` does not exist.", "model")
    if (problem := template_error(messages)) is not None:
        return error(400, "BadRequestError", problem)
    words = sum(len(str(message["content"]).split()) for message in messages)
    if words > CONTEXT_LENGTH:
        return error(
            400,
            "BadRequestError",
            f"This model's maximum context length is {CONTEXT_LENGTH} tokens. However, your request has {words} input "
            "tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    message = {
        "role": "assistant",
        "tool_calls": [],
        "reasoning_content": None,
        **MESSAGES.get(model, MESSAGES["judge"]),
    }
    finish = "length" if model == "truncated" else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    usage = {"prompt_tokens": words, "completion_tokens": 7, "total_tokens": words + 7, "prompt_tokens_details": None}
    return JSONResponse(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1700000000,
            "model": model,
            "choices": [choice],
            "usage": usage,
            "prompt_logprobs": None,
        }
    )


async def seen_requests(request: Request) -> Response:
    taken = list(seen)
    seen.clear()
    return PlainTextResponse(json.dumps(taken))


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/seen", seen_requests),
    ]
)


if __name__ == "__main__":
    serve(app)
