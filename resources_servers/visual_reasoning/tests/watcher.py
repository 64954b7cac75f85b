"""A model endpoint in its own process that answers from the pixels that arrive over HTTP.

`python watcher.py` prints its port, then serves until its input ends. It speaks Responses and Chat Completions. It
does not read the small print of a board: it asks for a part of the picture and compares the part with the picture. If
they are the same, it answers with the text that the request's `user` holds.
"""

import json

import numpy as np
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from resources_servers.visual_reasoning.tests.seeing import decoded, see
from tests.endpoint.program import serve

PART = {"x": 400, "y": 300, "w": 380, "h": 330}
FACTOR = 2
CALL = {"call_id": "call_1", "name": "zoom", "arguments": json.dumps(PART)}


def answer(text, urls, shown, code):
    """Return the text of an answer, or None to look at a part of the picture first."""
    question, pictures = text.partition("\n\n")[0], [decoded(url) for url in urls]
    if "`zoom`" not in question:
        return f"Answer: {see(question, pictures)}"
    if shown is None:
        return None
    part = pictures[0][PART["y"] : PART["y"] + PART["h"], PART["x"] : PART["x"] + PART["w"]]
    enlarged = np.asarray(Image.fromarray(decoded(shown).astype("uint8")).reduce(FACTOR)).astype(int)
    return f"Answer: {code if np.abs(enlarged - part).mean() < 4 else 'something else'}"


async def responses(request: Request) -> JSONResponse:
    body = await request.json()
    text, *images = body["input"][0]["content"]
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    shown = next((part["image_url"] for part in outputs[0] if part["type"] == "input_image"), "") if outputs else None
    said = answer(text["text"], [image["image_url"] for image in images], shown, body.get("user"))
    item = {"type": "function_call", "id": "fc_1", **CALL}
    if said is not None:
        content = [{"type": "output_text", "text": said, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    whole = {"id": "resp_1", "object": "response", "created_at": 0, "model": body["model"], "output": [item]}
    return JSONResponse({**whole, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})


async def chat_completions(request: Request) -> JSONResponse:
    body = await request.json()
    messages = body["messages"]
    text, *images = messages[0]["content"]
    shown = None
    if len(messages) > 1:
        # OpenAI accepts only text in tool messages.
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
        assert {part["type"] for part in messages[2]["content"]} == {"text"}
        shown = messages[3]["content"][-1]["image_url"]["url"]
    urls = [image["image_url"]["url"] for image in images]
    said = answer(text["text"], urls, shown, body.get("user"))
    message = {"role": "assistant", "content": said}
    if said is None:
        function = {"name": CALL["name"], "arguments": CALL["arguments"]}
        message["tool_calls"] = [{"id": CALL["call_id"], "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if said else "tool_calls"}
    whole = {"id": "c_1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
    return JSONResponse(whole)


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": "watcher", "object": "model"}]})


if __name__ == "__main__":
    routes = [
        Route("/v1/models", models),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    ]
    serve(Starlette(routes=routes))
