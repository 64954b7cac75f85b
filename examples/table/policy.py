"""The smallest language model that can be trained: a table of logits, served like a model in vLLM."""

from __future__ import annotations

import json
import math
import random
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nemo_gym.jsonl import JsonObject

SAY = "<say>"
"""The first token of a turn that is a message; that of a tool call is the tool's name."""
WORDS = [f"\\boxed{{{letter}}}" for letter in "ABCD"] + ["Up", "Down", "Left", "Right"]
"""All messages that the policy can write."""
NUMBERS = [str(number) for number in range(-4, 5)]
"""All arguments that it can pass to a tool."""
KEEP_ALIVE_S = 600
"""Seconds that idle connections stay open. On a busy machine, a call may reuse one at the moment of its close."""

Prefix = tuple[int, ...]
"""All tokens of a conversation before the one to predict."""


class Sampled(NamedTuple):
    """One sampled token and its log-probability."""

    token: int
    log_prob: float


class Vocabulary:
    """Words and their token ids, which are assigned as texts are first met."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._ids: dict[str, int] = {}

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of words."""
        return [self._id(word) for word in words]

    def _id(self, word: str) -> int:
        if word not in self._ids:
            self._ids[word] = len(self.words)
            self.words.append(word)
        return self._ids[word]


class TablePolicy:
    """A softmax over the tokens that may follow a prefix. Each prefix has its own logits, zero at first."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self._logits: dict[Prefix, dict[int, float]] = {}
        self._streams: dict[tuple[int, Prefix], random.Random] = {}
        """The random numbers of this step."""

    def forget(self) -> None:
        """Become the policy that has not learned anything."""
        self._logits.clear()
        self._streams.clear()

    def log_probs(self, prefix: Prefix) -> dict[int, float]:
        """Return the log-probability of each token that may follow a prefix from which a token was sampled."""
        logits = self._logits[prefix]
        largest = max(logits.values())
        total = largest + math.log(sum(math.exp(logit - largest) for logit in logits.values()))
        return {token: logit - total for token, logit in logits.items()}

    def step(self, gradient: Mapping[Prefix, Mapping[int, float]], learning_rate: float) -> None:
        """Add the gradient of the expected reward with respect to the logits."""
        for prefix, slopes in gradient.items():
            for token, slope in slopes.items():
                self._logits[prefix][token] += learning_rate * slope
        self._streams.clear()

    def turn(self, prompt: list[int], tools: Mapping[str, int], seed: int) -> list[Sampled]:
        """Sample a turn: a message of one word, or a call of a tool. `tools` has the number of each tool's arguments.

        A prompt that is sampled again with the same seed gets the next random numbers of that seed.
        """
        prefix, turn = tuple(prompt), list[Sampled]()
        while words := self._next_words([self.vocabulary.words[each.token] for each in turn], tools):
            turn.append(self._sample(prefix, words, seed))
            prefix += (turn[-1].token,)
        return turn

    def _next_words(self, turn: list[str], tools: Mapping[str, int]) -> list[str]:
        """Return the words that may come next, as a grammar for constrained decoding would."""
        if not turn:
            return [SAY, *tools]
        if turn[0] == SAY:
            return WORDS if len(turn) == 1 else []
        return NUMBERS if len(turn) <= tools[turn[0]] else []

    def _sample(self, prefix: Prefix, words: list[str], seed: int) -> Sampled:
        if prefix not in self._logits:
            self._logits[prefix] = dict.fromkeys(self.vocabulary.encode(words), 0.0)
        log_probs = self.log_probs(prefix)
        # Each prefix has its own random numbers, so that the order in which requests arrive does not matter.
        if (seed, prefix) not in self._streams:
            text = "".join(self.vocabulary.words[token] for token in prefix)
            self._streams[seed, prefix] = random.Random(f"{seed} {text}")
        stream = self._streams[seed, prefix]
        (token,) = stream.choices(list(log_probs), [math.exp(each) for each in log_probs.values()])
        return Sampled(token, log_probs[token])


def words_of(messages: Iterable[JsonObject]) -> Iterator[str]:
    """Yield the words of a conversation, as a chat template would write it. A sampled turn keeps its tokens."""
    for message in messages:
        yield f"<{message['role']}>"
        if message["role"] != "assistant":
            yield from re.findall(r"\s+|\S+", message["content"])
        elif calls := message.get("tool_calls"):
            for call in calls:
                yield call["function"]["name"]
                yield from map(str, json.loads(call["function"]["arguments"]).values())
        else:
            yield from (SAY, message["content"])
    yield "<assistant>"


class Endpoint:
    """The part of vLLM's interface that `vllm_model_for_training.yaml` uses."""

    def __init__(self, policy: TablePolicy) -> None:
        self._policy = policy
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat_completions, methods=["POST"]),
            ]
        )

    async def _models(self, _: Request) -> Response:
        return _json({"object": "list", "data": [{"id": "table", "object": "model"}]})

    async def _chat_completions(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        tools = {
            each["function"]["name"]: list(each["function"]["parameters"]["properties"])
            for each in body.get("tools") or ()
        }
        prompt = self._policy.vocabulary.encode(words_of(body["messages"]))
        turn = self._policy.turn(prompt, {name: len(names) for name, names in tools.items()}, body.get("seed", 0))
        words = [self._policy.vocabulary.words[each.token] for each in turn]
        return _json(_completion(prompt, turn, _message(words, tools, f"call_{len(prompt)}")))


def _json(value: JsonObject) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def _message(words: list[str], tools: Mapping[str, list[str]], call_id: str) -> JsonObject:
    kind, *rest = words
    if kind == SAY:
        return {"role": "assistant", "content": rest[0]}
    arguments = dict(zip(tools[kind], map(int, rest), strict=True))
    call = {"name": kind, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant", "content": None, "tool_calls": [{"id": call_id, "type": "function", "function": call}]
    }  # fmt: skip


def _completion(prompt: list[int], turn: list[Sampled], message: JsonObject) -> JsonObject:
    log_probs = [
        {"token": f"token_id:{each.token}", "logprob": each.log_prob, "bytes": None, "top_logprobs": []}
        for each in turn
    ]
    choice = {
        "index": 0,
        "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        "message": message,
        "token_ids": [each.token for each in turn],
        "logprobs": {"content": log_probs},
    }
    used = {"prompt_tokens": len(prompt), "completion_tokens": len(turn), "total_tokens": len(prompt) + len(turn)}
    return {
        "id": "chatcmpl-table", "object": "chat.completion", "created": int(time.time()), "model": "table",
        "prompt_token_ids": prompt, "choices": [choice], "usage": used,
    }  # fmt: skip


@contextmanager
def served(policy: TablePolicy) -> Iterator[str]:
    """Serve a policy from a thread of this process and yield the endpoint's address."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        app = Endpoint(policy).app
        config = uvicorn.Config(app, lifespan="off", log_level="warning", timeout_keep_alive=KEEP_ALIVE_S)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="policy")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()
