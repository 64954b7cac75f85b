"""Assemble the answer of a Messages endpoint from a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.dialects.calls import input_of_call
from nemo_gym.errors import EndpointError
from nemo_gym.http.model_replies import parsed, parsed_message, status_of
from nemo_gym.jsonl import JsonObject


def message_of_events(text: bytes) -> JsonObject | None:
    """Assemble the message from a reply's events. A reply that is a JSON object is returned as the message.

    Return None if the reply has neither events nor a JSON object. Raise `EndpointError` for an error event
    (with the status of its type), a malformed event, or a stream that ends too early.
    """
    if text.lstrip()[:1] == b"{":
        return parsed_message(text)
    stream = _Stream()
    for event in _events(text):
        try:
            stream.add(event)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            kind = event.get("type")
            raise EndpointError(f"sent an event {kind} that is not in the format of the Messages API") from error
    if not stream.message:
        return None
    if not stream.has_ended:
        raise EndpointError("ended its stream of events too early, without message_stop")
    return {**stream.message, "content": [stream.blocks[index] for index in sorted(stream.blocks)]}


@dataclass
class _Stream:
    """The part of a streamed message that has arrived so far."""

    message: JsonObject = field(default_factory=dict)
    blocks: dict[int, JsonObject] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    """The JSON text of each tool's input so far."""
    has_ended: bool = False

    def add(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self.message = event["message"]
            case "content_block_start":
                self.blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                self._extend(event["index"], event["delta"])
            case "content_block_stop":
                self._complete(event["index"])
            case "message_delta":
                # Replace earlier counts. Counts that did not change may be absent or null.
                counts = {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
                usage = {**(self.message.get("usage") or {}), **counts}
                self.message = {**self.message, **event["delta"], "usage": usage}
            case "message_stop":
                self.has_ended = True
                for index in list(self.arguments):
                    self._complete(index)
            case "error":
                error = event.get("error") or {}
                kind, message = error.get("type", "api_error"), error.get("message")
                raise EndpointError(
                    f"ended its stream of events with {kind}: {message}",
                    status=status_of(error) or 500,
                    body=str(message),
                )

    def _extend(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self.blocks[index]
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "input_json_delta":
                self.arguments[index] = self.arguments.get(index, "") + delta["partial_json"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]

    def _complete(self, index: int) -> None:
        text = self.arguments.pop(index, "")
        if text:
            # Invalid JSON occurs if the model reached its token limit.
            self.blocks[index]["input"] = input_of_call(text)


def _events(text: bytes) -> Iterator[JsonObject]:
    for block in text.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line.removeprefix(b"data:").strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        event = parsed(b"\n".join(lines))
        if event is not None:
            yield event
