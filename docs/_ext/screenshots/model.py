"""An endpoint like vLLM's for a scripted model, which solves the example tasks as often as its skill says."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nemo_gym.jsonl import JsonObject
from screenshots.script import Task, Turn, read_tasks, text_of

SKILLS = {"step_000": 0.15, "step_200": 0.4, "step_400": 0.68, "step_600": 0.8}
"""The share of tasks that each model solves, for a task of medium difficulty."""
BROKEN = 0.06
"""The share of rollouts with tools in which the endpoint fails after the first turn."""
UNDECIDED = 0.004
"""The share of judgements without a verdict."""
VOCABULARY = 128_000
PIECE = re.compile(r"\s?\w{1,4}|\s?[^\w\s]|\s+")


class ScriptedModel:
    """Several models, chosen by the name in the request."""

    def __init__(self, pace_s: float) -> None:
        self._tasks = {task.question: task for task in read_tasks()}
        self._pace_s = pace_s
        self._begun: Counter[tuple[str, str]] = Counter()
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat_completions, methods=["POST"]),
            ]
        )

    async def _models(self, _: Request) -> Response:
        return _json({"object": "list", "data": [{"id": name, "object": "model"} for name in SKILLS]})

    async def _chat_completions(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        messages, model = body["messages"], body["model"]
        asked = next(text_of(each["content"]) for each in messages if each["role"] == "user")
        is_judge = "[[" in asked
        attempt = 0 if is_judge else self._attempt(messages, model, asked)
        rng = random.Random(f"{model} {asked if is_judge else attempt} {len(messages)} {asked}")
        turn = _verdict(asked, rng) if is_judge else self._turn(messages, model, asked, attempt)
        await asyncio.sleep(self._pace_s * (0.3 + rng.expovariate(2) + len(turn.reasoning + turn.text) / 300))
        if turn is BREAKDOWN:
            return _json({"error": {"message": "CUDA error: an illegal memory access was encountered"}}, 500)
        return _json(_completion(messages, turn, model, f"call_{attempt}_{len(messages)}", rng))

    def _attempt(self, messages: list[JsonObject], model: str, asked: str) -> int:
        """Return the number of the rollout of this task, which the ids of its earlier calls contain."""
        ids = [call["id"] for each in messages for call in each.get("tool_calls") or ()]
        if ids:
            return int(ids[0].split("_")[1])
        self._begun[model, asked] += 1
        return self._begun[model, asked]

    def _turn(self, messages: list[JsonObject], model: str, asked: str, attempt: int) -> Turn:
        task = self._tasks[asked]
        rng = random.Random(f"{model} {attempt} {asked}")
        turns = task.solution if rng.random() < _chance(SKILLS[model], task) else task.mistake
        at = sum(each["role"] == "assistant" for each in messages)
        return BREAKDOWN if at and rng.random() < BROKEN else turns[at]


def _verdict(prompt: str, rng: random.Random) -> Turn:
    """Judge by rules that work for the mistakes of the script."""
    if rng.random() < UNDECIDED:
        return Turn("", text="It depends on how the criterion is read.")
    if "[[A=B]]" in prompt:
        return Turn("", text="Both are answers to the question, but their values differ.\n[[A!=B]]")
    _, criterion, question, expected, answer = _quoted(prompt)
    order, customer = re.findall(r"\d{5}", question)[0], question.splitlines()[-1]
    name = next(each for each in RULES if each in criterion)
    is_met = answer == expected or RULES[name](answer, order, customer)
    label = "[[met]]" if is_met else "[[not met]]"
    return Turn("", text=f"{REASONS[name][not is_met]}\n{label}")


RULES: dict[str, Callable[[str, str, str], bool]] = {
    "by name": lambda answer, order, customer: customer in answer,
    "number of the order": lambda answer, order, customer: order in answer,
    "happens next": lambda answer, order, customer: "cancel" in answer,
    "promise money": lambda answer, order, customer: "voucher" not in answer,
    "friendly": lambda answer, order, customer: "should have" not in answer,
}
"""Words of a criterion, and whether an answer meets it."""
REASONS = {
    "by name": ("The reply addresses the customer by name.", "The reply does not name the customer."),
    "number of the order": ("The order's number is in the reply.", "The reply does not name the order."),
    "happens next": ("The customer learns what happens next.", "The customer does not learn what happens next."),
    "promise money": (
        "The reply promises nothing else.",
        "The reference answer has no voucher.",
    ),
    "friendly": ("The tone is friendly.", "The reply blames the customer."),
}

BREAKDOWN = Turn("an error of the endpoint")


def _chance(skill: float, task: Task) -> float:
    """Return the chance to solve a task: the skill, moved by the task's difficulty."""
    odds = skill / (1 - skill) * 8 ** (0.5 - task.difficulty)
    return odds / (1 + odds)


def _quoted(prompt: str) -> list[str]:
    """Return the texts between the marks of a judge's prompt."""
    return [text for _, text in re.findall(r"<<<(\w+)\n(.*?)\n\1>>>", prompt, re.S)]


def _ids(text: str) -> list[int]:
    return [zlib.crc32(piece.encode()) % VOCABULARY for piece in PIECE.findall(text)]


def _prompt_ids(messages: list[JsonObject]) -> list[int]:
    """Return the tokens of a conversation. Earlier turns keep theirs."""
    ids: list[int] = []
    for each in messages:
        if each.get("prompt_token_ids"):
            ids = [*each["prompt_token_ids"], *each["generation_token_ids"]]
        else:
            ids += _ids(f"<{each['role']}>{text_of(each.get('content') or '')}")
    return [*ids, *_ids("<assistant>")]


def _completion(messages: list[JsonObject], turn: Turn, model: str, call_id: str, rng: random.Random) -> JsonObject:
    prompt = _prompt_ids(messages)
    arguments = json.dumps(turn.arguments or {}, ensure_ascii=False)
    written = _ids(f"{turn.reasoning}{turn.text}{turn.call and turn.call + arguments}<end>")
    message: JsonObject = {"role": "assistant", "content": turn.text or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.call:
        function = {"name": turn.call, "arguments": arguments}
        message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
    log_probs: list[JsonObject] = [
        {"token": f"token_id:{each}", "logprob": -min(8.0, rng.expovariate(1.5)), "bytes": None, "top_logprobs": []}
        for each in written
    ]
    choice = {
        "index": 0,
        "finish_reason": "tool_calls" if turn.call else "stop",
        "message": message,
        "token_ids": written,
        "logprobs": {"content": log_probs},
    }
    used = {
        "prompt_tokens": len(prompt), "completion_tokens": len(written), "total_tokens": len(prompt) + len(written)
    }  # fmt: skip
    return {
        "id": "chatcmpl-script", "object": "chat.completion", "created": int(time.time()), "model": model,
        "prompt_token_ids": prompt, "choices": [choice], "usage": used,
    }  # fmt: skip


def _json(value: JsonObject, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


@contextmanager
def served(pace_s: float) -> Iterator[str]:
    """Serve the scripted model from a thread of this process and yield the endpoint's address."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        server = uvicorn.Server(uvicorn.Config(ScriptedModel(pace_s).app, lifespan="off", log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],), name="scripted model")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()
