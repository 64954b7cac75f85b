"""A chat endpoint with token ids that remembers what it samples, for agents that do not pass token ids on.

Each character is a token. `python policy.py` prints its port, then serves until its input ends. `GET /sampled` lists
the prompt, the sampled tokens and their log-probabilities of each call.
"""

from __future__ import annotations

import asyncio
import random

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.endpoint.program import serve

VOTES = 6
calls: list[dict] = []
all_votes = asyncio.Barrier(VOTES)
"""Calls that ask for a vote are answered when so many of them run."""
WORDS = ("yes", "no", "perhaps", "never", "always")


def text_of(message: dict) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


async def chat_completions(request: Request) -> JSONResponse:
    body = await request.json()
    if "which one?" in text_of(body["messages"][-1]):
        await all_votes.wait()
    prompt = encode("".join(f"<{each['role']}>{text_of(each)}" for each in body["messages"]) + "<assistant>")
    text = " ".join(random.choices(WORDS, k=random.randrange(1, 5)))
    sampled = encode(text)
    log_probs = [-random.random() for _ in sampled]
    calls.append({"prompt": prompt, "sampled": sampled, "log_probs": log_probs})
    content = [{"token": f"token_id:{token}", "logprob": number, "bytes": [], "top_logprobs": []}
               for token, number in zip(sampled, log_probs, strict=True)]  # fmt: skip
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": sampled}
    return JSONResponse(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{**choice, "logprobs": {"content": content}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            "prompt_token_ids": prompt,
        }
    )


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": "policy", "object": "model"}]})


async def sampled_so_far(request: Request) -> JSONResponse:
    return JSONResponse(calls)


if __name__ == "__main__":
    routes = [
        Route("/v1/models", models),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/sampled", sampled_so_far),
    ]
    serve(Starlette(routes=routes))
