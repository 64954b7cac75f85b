"""An OpenAI-compatible endpoint in its own process that answers with a script from the request's metadata.

`metadata.script` is JSON: a list of turns, each a list of items. `{"text": …}` is a message, `{"call": name,
"arguments": text}` a tool call. With `"nested": n` a message also contains n nested lists. The conversation determines
the current turn; after the last turn, answers are empty.
`python tests/endpoint/scripted.py` prints its port, then serves until its input ends.
"""

import json
import re

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.endpoint.program import serve

NEST = "nested lists: "


def turns_taken(items: list[dict]) -> int:
    """Count our turns in a conversation; the id of each of our items contains its turn number."""
    return len({item["id"].split("-")[1] for item in items if str(item.get("id")).startswith("turn-")})


def item_of(scripted: dict, item_id: str) -> dict:
    if "call" in scripted:
        call = {"name": scripted["call"], "arguments": scripted["arguments"], "call_id": f"call-{item_id}"}
        return {"type": "function_call", "id": item_id, "status": "completed", **call}
    text = {"type": "output_text", "text": scripted["text"], "annotations": [], "logprobs": []}
    further = {"thoughts": f"{NEST}{scripted['nested']}"} if "nested" in scripted else {}
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": [text], **further}


def nested(text: bytes) -> bytes:
    """Replace each mark by lists, because `json` rejects deep ones."""
    return re.sub(rb'"%s(\d+)"' % NEST.encode(), lambda mark: b"[" * int(mark[1]) + b"]" * int(mark[1]), text)


async def responses(request: Request) -> Response:
    body = await request.json()
    script = json.loads(body["metadata"]["script"])
    turn = turns_taken(body["input"])
    items = script[turn] if turn < len(script) else []
    answer = JSONResponse(
        {
            "id": f"resp-{turn}",
            "object": "response",
            "created_at": 0,
            "model": body["model"],
            "status": "completed",
            "output": [item_of(item, f"turn-{turn}-{place}") for place, item in enumerate(items)],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    return Response(nested(bytes(answer.body)), media_type="application/json")


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": "scripted", "object": "model"}]})


app = Starlette(routes=[Route("/v1/models", models), Route("/v1/responses", responses, methods=["POST"])])


if __name__ == "__main__":
    serve(app)
