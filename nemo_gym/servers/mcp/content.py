"""A tool's output as the content blocks of MCP."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nemo_gym.jsonl import dump_json
from nemo_gym.servers.tools.parts import ToolOutput

if TYPE_CHECKING:
    from mcp.types import ContentBlock

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+);base64,(?P<data>.+)", re.DOTALL)


def content_of(output: ToolOutput) -> list[ContentBlock]:
    """Convert a tool's output. A part without a block of its own, such as an image at a URL, becomes JSON text."""
    from mcp.types import TextContent

    return [TextContent(text=output)] if isinstance(output, str) else [_block(part) for part in output]


def _block(part: object) -> ContentBlock:
    from mcp.types import AudioContent, ImageContent, TextContent

    match part:
        case {"type": "input_text", "text": str(text)}:
            return TextContent(text=text)
        case {"type": "input_image", "image_url": str(url)} if image := _DATA_URL.fullmatch(url):
            return ImageContent(data=image["data"], mime_type=image["type"])
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(name)}}:
            return AudioContent(data=data, mime_type=f"audio/{name}")
    return TextContent(text=dump_json(part).decode())
