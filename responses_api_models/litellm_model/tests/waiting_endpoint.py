"""An endpoint that answers the model `all:<number>` after so many requests, and rejects `later:<seconds>` once."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.endpoint.program import serve

waiting: dict[str, int] = {}
all_here: dict[str, asyncio.Event] = {}


async def chat_completions(request: Request) -> Response:
    model = (await request.json())["model"]
    kind, _, number = model.partition(":")
    waiting[model] = waiting.get(model, 0) + 1
    if kind == "later" and waiting[model] == 1:
        return JSONResponse({"error": {"message": "Too many."}}, 429, {"Retry-After": number})
    event = all_here.setdefault(model, asyncio.Event())
    if kind == "later" or waiting[model] == int(number):
        event.set()
    await event.wait()
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    return JSONResponse(completion)


app = Starlette(routes=[Route("/v1/chat/completions", chat_completions, methods=["POST"])])


if __name__ == "__main__":
    serve(app)
