"""A scoring endpoint in its own process, with the routes and errors of vLLM's scoring APIs and a plain one.

The model's name decides how it behaves. A score is the number of words of the answer, so that tests can predict it.
`python scoring_endpoint.py --port 0` prints its port, then serves until its input ends. `GET /seen` lists the received
requests as `{path, headers, body}`; `DELETE /seen` clears the list.
"""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.endpoint.program import NoteRequests, serve

MAX_MODEL_LEN = 200
seen: list[dict] = []
times: dict[str, int] = {}
USAGE = {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None}
KNOWN = ("rm", "per-token", "nested", "null", "text", "no-score", "two-scores", "empty", "refused-in-200", "true")
RAW = {"nan": b"NaN", "infinity": b"Infinity", "overflow": b"1e999"}
"""Values that Python's json writes or reads, although they are not JSON."""


def failure(status: int, message: str, kind: str, *, nested: bool = False) -> Response:
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return JSONResponse({"error": body} if nested else body, status)


async def misbehave(model: str, words: int, key: str) -> Response | None:
    """Return the failure that the model's name asks for, or None."""
    kind, _, argument = model.partition(":")
    if kind == "starting":
        return failure(503, "The engine is starting.", "ServiceUnavailable")
    if kind == "chat-model":
        return failure(501, "The model does not support this API", "NotImplementedError", nested=True)
    if kind == "flaky":
        times[model] = times.get(model, 0) + 1
        return (
            failure(503, "Try again.", "ServiceUnavailable") if times[model] <= int(argument.split("/")[0]) else None
        )
    if kind == "wants-key":
        return None if key == f"Bearer {argument}" else failure(401, f"Invalid key: {key[7:]}", "Unauthorized")
    if kind == "slow":
        await asyncio.sleep(float(argument))
        return None
    if words > MAX_MODEL_LEN:
        message = (
            f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, you requested {words} tokens"
        )
        return failure(400, message, "BadRequestError", nested=kind == "nested")
    if kind not in KNOWN and kind not in RAW:
        return failure(404, f"The model `{model}` does not exist.", "NotFoundError")
    return None


def envelope(model: str, items: list[dict]) -> dict:
    return {"id": "score-1", "object": "list", "created": 1, "model": model, "data": items, "usage": USAGE}


async def answered(body: dict, key: str, texts: list[str], item_of) -> Response:
    """Return one item for each text, as the model's name asks for."""
    model = body["model"]
    words = sum(len(text.split()) for text in texts)
    if problem := await misbehave(model, words, key):
        return problem
    if model == "refused-in-200":
        return failure(200, "No such pooling task.", "BadRequestError")
    if model == "empty":
        return JSONResponse(envelope(model, []))
    score = {"null": None, "text": "high", "true": True}.get(model, float(len(texts[-1].split())))
    if model in RAW:
        return Response(
            JSONResponse(envelope(model, [item_of(-98.5)])).body.replace(b"-98.5", RAW[model]),
            media_type="application/json",
        )
    item = item_of(score)
    if model == "no-score":
        item = {"index": 0, "object": "score"}
    return JSONResponse(envelope(model, [item] * (2 if model == "two-scores" else 1)))


async def score(request: Request) -> Response:
    body = await request.json()
    return await answered(
        body,
        request.headers.get("authorization", ""),
        [body["text_1"], body["text_2"]],
        lambda score: {"index": 0, "object": "score", "score": score},
    )


def texts_of(body: dict) -> list[str]:
    if "messages" in body:
        return [message["content"] for message in body["messages"]]
    return [body["input"]] if isinstance(body["input"], str) else body["input"]


async def classify(request: Request) -> Response:
    body = await request.json()
    return await answered(
        body,
        request.headers.get("authorization", ""),
        texts_of(body),
        lambda score: {"index": 0, "label": "good", "probs": [-1.0, score], "num_classes": 2},
    )


async def pooling(request: Request) -> Response:
    body = await request.json()
    shapes = {"per-token": lambda score: [-3.0, -2.0, score], "nested": lambda score: [[-3.0], [score]]}
    shape = shapes.get(body["model"], lambda score: [score])
    return await answered(
        body,
        request.headers.get("authorization", ""),
        texts_of(body),
        lambda score: {"index": 0, "object": "pooling", "data": shape(score)},
    )


async def plain(request: Request) -> Response:
    given = (await request.json())["input"]
    words = len(given["answer"].split())
    return JSONResponse({"score": 0.25 * words} if words < MAX_MODEL_LEN else {"detail": "too long"})


async def seen_requests(request: Request) -> Response:
    if request.method == "DELETE":
        seen.clear()
    return JSONResponse(seen)


app = Starlette(
    routes=[
        Route("/score", score, methods=["POST"]),
        Route("/classify", classify, methods=["POST"]),
        Route("/pooling", pooling, methods=["POST"]),
        Route("/my/scorer", plain, methods=["POST"]),
        Route("/seen", seen_requests, methods=["GET", "DELETE"]),
    ]
)
app.add_middleware(NoteRequests, seen=seen)


if __name__ == "__main__":
    serve(app)
