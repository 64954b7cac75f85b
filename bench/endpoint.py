"""A model endpoint that costs next to nothing: Responses and Chat Completions, a fixed answer, after a fixed delay.

    python -m bench.endpoint [--port 0] [--delay 0] [--steps 1]

It asks for one tool call for each of the `--steps`, then answers; how far a conversation is, it reads off the number
of tool results in the request. Prints its port and serves until its standard input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from typing import NamedTuple, cast

import httptools
import orjson

FILLER = "It is a fine day, and the weather in the city is what it was told to be. " * 8
USAGE = {"input_tokens": 180, "output_tokens": 20, "total_tokens": 200,
         "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather",
        "arguments": '{"city": "Paris"}', "status": "completed"}  # fmt: skip
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
           "content": [{"type": "output_text", "text": FILLER, "annotations": []}]}  # fmt: skip


class Answers(NamedTuple):
    """What is answered to a request of one dialect: while calls are due, and after them."""

    call: bytes
    message: bytes
    result_mark: bytes
    """Occurs once for each tool result in a request."""


def _response(item: dict[str, object]) -> bytes:
    return _http({
        "id": "resp_1", "object": "response", "created_at": 1.0, "model": "mock", "output": [item], "usage": USAGE,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {"filler": FILLER[:300]},
    })  # fmt: skip


def _completion(message: dict[str, object], finish: str) -> bytes:
    return _http({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 180, "completion_tokens": 20, "total_tokens": 200},
    })  # fmt: skip


def _http(value: dict[str, object]) -> bytes:
    body = orjson.dumps(value)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


CHAT_CALL = {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {
    "name": "get_weather", "arguments": '{"city": "Paris"}'}}]}  # fmt: skip
RESPONSES = Answers(_response(CALL), _response(MESSAGE), b'"function_call_output"')
CHAT = Answers(_completion(CHAT_CALL, "tool_calls"), _completion({"content": FILLER}, "stop"), b'"role":"tool"')
MODELS = _http({"object": "list", "data": [{"id": "mock", "object": "model"}]})


class Connection(asyncio.Protocol):
    """Answers one request after the other."""

    transport: asyncio.Transport

    def __init__(self, delay_s: float, steps: int) -> None:
        self._delay_s = delay_s
        self._steps = steps
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        if self._path.endswith(b"/models"):
            self.transport.write(MODELS)
            return
        answers = CHAT if self._path.endswith(b"/chat/completions") else RESPONSES
        results = b"".join(self._body).count(answers.result_mark)
        answer = answers.call if results < self._steps else answers.message
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, self._write, answer)
        else:
            self.transport.write(answer)

    def _write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)


async def serve(port: int, delay_s: float, steps: int) -> None:
    """Serve until standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, delay_s, steps), "127.0.0.1", port, backlog=20_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Read the command line and serve."""
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--steps", type=int, default=1, help="tool calls in each conversation")
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.delay, options.steps))


if __name__ == "__main__":
    main()
