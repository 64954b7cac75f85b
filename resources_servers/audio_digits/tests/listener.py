"""A model endpoint in its own process that hears the digits in what arrives over HTTP.

`python listener.py` prints its port, then serves until its input ends. It speaks Responses and Chat Completions.
"""

from hearing import hear
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.endpoint.program import serve

KIND_BY_WORD = {"telephone": "dtmf", "beep": "beeps", "Morse": "morse"}


def answer(content: list[dict], text_type: str) -> str:
    """Answer a message like a model that reads its text and hears its audio."""
    text, audio = content
    assert (text["type"], audio["type"]) == (text_type, "input_audio")
    assert audio["input_audio"]["format"] == "wav"
    kind = next(kind for word, kind in KIND_BY_WORD.items() if word in text["text"])
    return f"Answer: {hear(kind, audio['input_audio']['data'])}"


async def responses(request: Request) -> JSONResponse:
    body = await request.json()
    said = {"type": "output_text", "text": answer(body["input"][0]["content"], "input_text"), "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    whole = {"id": "resp_1", "object": "response", "created_at": 0, "model": body["model"], "output": [item]}
    return JSONResponse({**whole, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})


async def chat_completions(request: Request) -> JSONResponse:
    body = await request.json()
    message = {"role": "assistant", "content": answer(body["messages"][0]["content"], "text")}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {"id": "c_1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
    )


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": "listener", "object": "model"}]})


if __name__ == "__main__":
    routes = [
        Route("/v1/models", models),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    ]
    serve(Starlette(routes=routes))
