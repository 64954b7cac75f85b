"""A very cheap model endpoint for Responses and Chat Completions, with fixed answers after a fixed delay.

    python -m bench.endpoint [--port 0] [--delay 0] [--steps 1] [--text-bytes 600] [--token-bytes 0] [--turn-tokens 0]

It requests one tool call per step (`--steps`), then answers. The number of tool results in the request shows the
current step. `--text-bytes` is the length of the answer's text. `--token-bytes` is the JSON size of all token ids and
log-probabilities of a conversation, divided equally between its answers. With `--turn-tokens`, each answer has this
many tokens instead, and the prompt ids of a turn are all tokens of the turns before. Chat Completions have the
tokens in the message, or with `--as-logprobs` as vLLM returns them. The program prints its port and serves until its
standard input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, cast

import httptools
import orjson

FILLER = "It is a fine day, and the weather in the city is just what was forecast. "
TEXT_BYTES = 584
ARGUMENTS = '{"city": "Paris"}'
USAGE = {"input_tokens": 180, "output_tokens": 20, "total_tokens": 200,
         "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
ID_BYTES, LOG_PROB_BYTES = 6, 11
"""The JSON size of a token id and of a log-probability, including the comma."""

Tokens = dict[str, list[int] | list[float]]


class Payload(NamedTuple):
    """The size of the answers."""

    text_bytes: int = TEXT_BYTES
    token_bytes: int = 0
    turn_tokens: int = 0
    as_logprobs: bool = False


class Script(NamedTuple):
    """The answers in one dialect, by the number of tool results in the request."""

    answers: tuple[bytes, ...]
    """Complete HTTP responses: one tool call per step, then the message."""
    result_mark: bytes
    """Bytes that occur once per tool result in a request."""

    def answer_to(self, request: bytes) -> bytes:
        return self.answers[min(request.count(self.result_mark), len(self.answers) - 1)]


@cache
def responses_script(steps: int, payload: Payload) -> Script:
    """Return the answers of `/responses`."""
    calls: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"fc_{step}", "call_id": f"call_{step}", "name": "get_weather",
         "arguments": ARGUMENTS, "status": "completed"}
        for step in range(1, steps + 1)
    ]  # fmt: skip
    message: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": _text(payload.text_bytes), "annotations": []}]}  # fmt: skip
    turns = zip((*calls, message), _tokens_of_turns(steps + 1, payload), strict=True)
    answers = tuple(_response({**item, **tokens}) for item, tokens in turns)
    return Script(answers, b'"function_call_output"')


@cache
def chat_script(steps: int, payload: Payload) -> Script:
    """Return the answers of `/chat/completions`."""
    calls: list[dict[str, Any]] = [
        {"content": None, "tool_calls": [{"id": f"call_{step}", "type": "function",
                                          "function": {"name": "get_weather", "arguments": ARGUMENTS}}]}
        for step in range(1, steps + 1)
    ]  # fmt: skip
    answer: dict[str, Any] = {"content": _text(payload.text_bytes)}
    turns = zip((*calls, answer), _tokens_of_turns(steps + 1, payload), strict=True)
    completion = _completion_with_logprobs if payload.as_logprobs else _completion
    answers = tuple(completion(message, tokens) for message, tokens in turns)
    return Script(answers, b'"role":"tool"')


def _text(size: int) -> str:
    return (FILLER * (size // len(FILLER) + 1))[:size]


def _tokens_of_turns(turns: int, payload: Payload) -> list[Tokens]:
    """Return the tokens of each answer."""
    if not payload.turn_tokens:
        return [_tokens(payload.token_bytes // turns)] * turns
    draw, size = random.Random(0), payload.turn_tokens
    ids = [draw.randrange(10_000, 100_000) for _ in range(size * (turns + 1))]
    log_probs = [-round(draw.uniform(1.0, 9.0), 7) for _ in range(size)]
    return [
        {
            "prompt_token_ids": ids[:end],
            "generation_token_ids": ids[end : end + size],
            "generation_log_probs": log_probs,
        }
        for end in range(size, len(ids), size)
    ]


def _tokens(size: int) -> Tokens:
    """Use half of the bytes for prompt ids, half for generation ids with their log-probabilities."""
    if not size:
        return {}
    draw = random.Random(0)
    prompt, generation = size // 2 // ID_BYTES, size // 2 // (ID_BYTES + LOG_PROB_BYTES)
    return {
        "prompt_token_ids": [draw.randrange(10_000, 100_000) for _ in range(prompt)],
        "generation_token_ids": [draw.randrange(10_000, 100_000) for _ in range(generation)],
        "generation_log_probs": [-round(draw.uniform(1.0, 9.0), 7) for _ in range(generation)],
    }


def _response(item: dict[str, Any]) -> bytes:
    return _http({
        "id": "resp_1", "object": "response", "created_at": 1.0, "model": "mock", "output": [item], "usage": USAGE,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {"filler": _text(300)},
    })  # fmt: skip


def _completion(message: dict[str, Any], tokens: Tokens) -> bytes:
    return _http(_completed({**message, **tokens}))


def _completion_with_logprobs(message: dict[str, Any], tokens: Tokens) -> bytes:
    """Return the tokens in the form of vLLM, for `return_token_ids` and `return_tokens_as_token_ids`."""
    completion = _completed(message)
    choice, ids = completion["choices"][0], tokens.get("generation_token_ids", [])
    choice["token_ids"], completion["prompt_token_ids"] = ids, tokens.get("prompt_token_ids", [])
    choice["logprobs"] = {"content": [
        {"token": f"token_id:{token}", "logprob": log_prob, "bytes": list(b"token"), "top_logprobs": []}
        for token, log_prob in zip(ids, tokens.get("generation_log_probs", []), strict=True)
    ]}  # fmt: skip
    return _http(completion)


def _completed(message: dict[str, Any]) -> dict[str, Any]:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 180, "completion_tokens": 20, "total_tokens": 200},
    }  # fmt: skip


def _http(value: dict[str, Any]) -> bytes:
    body = orjson.dumps(value)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


MODELS = _http({"object": "list", "data": [{"id": "mock", "object": "model"}]})


class Later:
    """A queue of calls with a fixed delay that needs only one timer."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, Callable[[bytes], None], bytes]] = deque()

    def add(self, do: Callable[[bytes], None], what: bytes) -> None:
        self._waiting.append((self._loop.time() + self._delay_s, do, what))
        if len(self._waiting) == 1:
            self._loop.call_later(self._delay_s, self._do_what_is_due)

    def _do_what_is_due(self) -> None:
        # uvloop's timers have a resolution of one millisecond.
        now = self._loop.time() + 0.001
        while self._waiting and self._waiting[0][0] <= now:
            _, do, what = self._waiting.popleft()
            do(what)
        if self._waiting:
            self._loop.call_later(max(0.0, self._waiting[0][0] - now), self._do_what_is_due)


@cache
def later_by(delay_s: float) -> Later:
    """Return this process's queue for a delay."""
    return Later(delay_s)


class Connection(asyncio.Protocol):
    """A connection that answers requests one after the other."""

    transport: asyncio.Transport

    def __init__(self, delay_s: float, steps: int, payload: Payload = Payload()) -> None:  # noqa: B008 - frozen
        self._delay_s = delay_s
        self._later = later_by(delay_s)
        self._responses = responses_script(steps, payload)
        self._chat = chat_script(steps, payload)
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        path, parts = self._path, self._body
        self._path, self._body = b"", []
        if path.endswith(b"/models"):
            self.transport.write(MODELS)
            return
        script = self._chat if path.endswith(b"/chat/completions") else self._responses
        answer = script.answer_to(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._delay_s:
            self._later.add(self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)


async def serve(port: int, delay_s: float, steps: int, payload: Payload) -> None:
    """Serve until standard input is closed."""
    # Each waiting rollout has an open connection.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, delay_s, steps, payload), "127.0.0.1", port, backlog=20_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Read the command line and serve."""
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--steps", type=int, default=1, help="tool calls per conversation")
    parser.add_argument("--text-bytes", type=int, default=TEXT_BYTES, help="length of the last answer")
    parser.add_argument("--token-bytes", type=int, default=0, help="JSON size of all token ids of a conversation")
    parser.add_argument("--turn-tokens", type=int, default=0, help="tokens per answer, with growing prompts")
    parser.add_argument("--as-logprobs", action="store_true", help="Chat Completions with tokens in vLLM's form")
    options = parser.parse_args()
    payload = Payload(options.text_bytes, options.token_bytes, options.turn_tokens, options.as_logprobs)
    uvloop.run(serve(options.port, options.delay, options.steps, payload))


if __name__ == "__main__":
    main()
