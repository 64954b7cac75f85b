"""Conversion of a tool's output to MCP content blocks."""

from __future__ import annotations

import re

from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.servers.tools.parts import ToolOutput

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+);base64,(?P<data>.+)", re.DOTALL)


def content_of(output: ToolOutput) -> list[JsonObject]:
    """Convert a tool's output to MCP blocks. A part without an MCP form, such as an image URL, becomes JSON text."""
    return [text_block(output)] if isinstance(output, str) else [_block(part) for part in output]


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _block(part: object) -> JsonObject:
    match part:
        case {"type": "input_text", "text": str(text)}:
            return text_block(text)
        case {"type": "input_image", "image_url": str(url)} if image := _DATA_URL.fullmatch(url):
            return {"type": "image", "data": image["data"], "mimeType": image["type"]}
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(name)}}:
            return {"type": "audio", "data": data, "mimeType": f"audio/{name}"}
    return text_block(dump_json(part).decode())
