"""A gateway in front of a policy. It has an address per name and records the calls that arrive at each.

The policy calls the first tool that it is offered with `{"count": 2}`, and then answers. Its tokens are the characters
of the conversation, so each turn's prompt continues the tokens before it. A user message with ECHO makes it answer
with the credentials that it received, one with ERROR makes it reject them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import orjson

PATIENCE_S = 100.0


class Call(NamedTuple):
    """A call that arrived."""

    name: str
    """The address at which it arrived."""
    key: str | None
    """The value of its Authorization header."""
    model: str
    text: str
    """The text of its first user message."""


class Gateway:
    """The addresses, and the calls so far."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._held: set[str] = set()
        self._busy: set[str] = set()
        self._changed = threading.Condition()
        self.calls: list[Call] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._port}/{name}/v1"

    def calls_of(self, text: str) -> list[Call]:
        return [call for call in self.calls if call.text == text]

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Answer calls at an address only after the block."""
        self._held.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._held.discard(name)
                self._changed.notify_all()

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """Answer calls at an address with 429 until the end of the block."""
        self._busy.add(name)
        try:
            yield
        finally:
            self._busy.discard(name)

    def wait_for(self, text: str) -> None:
        """Wait until a call with this text has arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.calls_of(text), PATIENCE_S)

    def take(self, call: Call) -> bool:
        """Record a call, and return whether to answer it."""
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: call.name not in self._held, PATIENCE_S)
        return call.name not in self._busy


@contextmanager
def running_gateway() -> Iterator[Gateway]:
    """Serve a gateway for the duration of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": []})

        def do_POST(self) -> None:
            body = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
            _, name, *_, route = self.path.split("/")
            key, messages = self.headers["authorization"], body.get("messages") or items_of(body["input"])
            text = next(text_of(each) for each in messages if each.get("role") == "user")
            if not gateway.take(Call(name, key, body["model"], text)):
                self._send(429, {"error": {"message": "Come back later."}})
            elif "ERROR" in text:
                self._send(401, {"error": {"message": f"Incorrect key provided: {key}"}})
            else:
                message = answer_to(messages, body.get("tools"), f"You sent {key}" if "ECHO" in text else "Done.")
                self._send(200, (response if route == "responses" else completion)(body, messages, message))

        def _send(self, status: int, body: Any) -> None:
            data = orjson.dumps(body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Disable request logging."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway = Gateway(server.server_port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()


def items_of(given: Any) -> list[Any]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def answer_to(messages: list[Any], tools: Any, answer: str) -> dict[str, Any]:
    has_called = any(each.get("role") == "tool" or each.get("type") == "function_call_output" for each in messages)
    if not tools or has_called:
        return {"role": "assistant", "content": answer}
    function = {"name": tools[0].get("function", tools[0])["name"], "arguments": '{"count": 2}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


def tokens_of(message: dict[str, Any]) -> list[int]:
    functions = [each["function"] for each in message.get("tool_calls") or ()]
    calls = "".join(each["name"] + each["arguments"] for each in functions)
    return [ord(character) for character in f"{text_of(message)}{calls}\n"]


def completion(body: Any, messages: list[Any], message: dict[str, Any]) -> dict[str, Any]:
    prompt = [number for each in messages for number in (*map(ord, each["role"]), *tokens_of(each))]
    sampled = tokens_of(message)
    content = [{"token": f"token_id:{token}", "logprob": -0.5, "bytes": [], "top_logprobs": []} for token in sampled]
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": {"content": content}}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{**choice, "token_ids": sampled}], "prompt_token_ids": [*prompt, *map(ord, "assistant")],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(sampled), "total_tokens": len(prompt)},
    }  # fmt: skip


def response(body: Any, messages: list[Any], message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"type": "function_call", "id": "fc_1", "call_id": each["id"], "status": "completed", **each["function"]}
        for each in message.get("tool_calls") or ()
    ]
    parts = [{"type": "output_text", "text": message["content"], "annotations": []}]
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": parts}
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": body["model"], "output": calls or [said],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": body.get("tools", []),
    }  # fmt: skip
