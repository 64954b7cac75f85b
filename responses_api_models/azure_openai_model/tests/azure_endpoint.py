"""An endpoint with the paths, the errors and the additional fields of Azure OpenAI, in its own process.

The deployment's name selects a fault. `--port 0` prints the port; it serves until its input ends.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.endpoint.program import NoteRequests, serve

KEY = "azure-key-1234567890"
SAFE = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}
FILTERED = {**SAFE, "violence": {"filtered": True, "severity": "medium"}}
seen: list[dict] = []
busy = {"busy-once": 1, "busy": 10**9}


def error(http: int, code: str, message: str, headers: dict[str, str] | None = None, **fields: object) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, **fields}}, http, headers)


def fault_of(request: Request, deployment: str) -> Response | None:
    if request.headers.get("api-key") != KEY:
        return error(401, "401", "Access denied due to invalid subscription key or wrong API endpoint.")
    if "/v1/" not in request.url.path and request.query_params.get("api-version") != "2024-10-21":
        return error(404, "404", "Resource not found")
    if busy.get(deployment, 0) > 0:
        busy[deployment] -= 1
        text = "Requests have exceeded the token rate limit of your current pricing tier."
        return error(429, "429", text, {"retry-after-ms": "20", "retry-after": "60"})
    if deployment == "filters-prompt":
        inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": FILTERED}
        text = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
        return error(400, "content_filter", text, param="prompt", type=None, status=400, innererror=inner)
    if deployment == "bad-request":
        return error(400, "unsupported_parameter", "Unsupported parameter: 'spam'.", param="spam")
    if deployment == "missing":
        return error(404, "DeploymentNotFound", "The API deployment for this resource does not exist.")
    return None


async def chat_completions(request: Request) -> Response:
    body = await request.json()
    deployment = request.path_params.get("deployment") or body["model"]
    if (fault := fault_of(request, deployment)) is not None:
        return fault
    is_filtered = deployment == "filters-answer"
    message = {"role": "assistant", "content": "It began" if is_filtered else "Hello!", "refusal": None}
    choice = {
        "index": 0,
        "finish_reason": "content_filter" if is_filtered else "stop",
        "message": {**message, "annotations": []},
        "logprobs": None,
        "content_filter_results": FILTERED if is_filtered else SAFE,
    }
    return JSONResponse(
        {
            "id": "chatcmpl-azure",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "gpt-4.1-mini-2025-04-14",
            "system_fingerprint": "fp_azure",
            "choices": [choice],
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        }
    )


async def responses(request: Request) -> Response:
    body = await request.json()
    if (fault := fault_of(request, body["model"])) is not None:
        return fault
    text = {"type": "output_text", "text": "Hello!", "annotations": []}
    is_filtered = body["model"] == "filters-answer"
    status = "incomplete" if is_filtered else "completed"
    return JSONResponse(
        {
            "id": "resp_azure",
            "object": "response",
            "created_at": 1700000000,
            "model": "gpt-4.1-mini",
            "status": status,
            "incomplete_details": {"reason": "content_filter"} if is_filtered else None,
            "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": [text]}],
            "content_filters": [{"blocked": is_filtered, "source_type": "completion"}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 11,
            },
        }
    )


async def seen_requests(request: Request) -> Response:
    taken = list(seen)
    seen.clear()
    return JSONResponse(taken)


app = Starlette(
    routes=[
        Route("/openai/v1/responses", responses, methods=["POST"]),
        Route("/openai/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/openai/responses", responses, methods=["POST"]),
        Route("/openai/deployments/{deployment}/chat/completions", chat_completions, methods=["POST"]),
        Route("/seen", seen_requests),
    ]
)
app.add_middleware(NoteRequests, seen=seen)


if __name__ == "__main__":
    serve(app)
