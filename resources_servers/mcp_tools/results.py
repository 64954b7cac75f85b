"""The result of an MCP tool as the output for the model."""

from collections.abc import Callable
from typing import Any

import orjson
from mcp.types import CallToolResult

from nemo_gym import NeMoGymResponseInputImage, NeMoGymResponseInputText, ToolError

Part = NeMoGymResponseInputText | NeMoGymResponseInputImage
Output = str | list[Part]
BINARY = ("data", "blob")


def output_of(result: CallToolResult, hidden: Callable[[str], str]) -> Output:
    """Return the text of a result, or its parts if it has images. `hidden` removes secrets from a text.

    Other contents, such as sounds and links, are described. Raise `ToolError` for a result that is an error.
    """
    contents = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.content]
    parts = [_part(each, hidden) for each in contents]
    texts = [part.text for part in parts if isinstance(part, NeMoGymResponseInputText)]
    if not parts and result.structured_content is not None:
        texts = [hidden(orjson.dumps(result.structured_content).decode())]
    if result.is_error:
        raise ToolError("\n".join(texts) or "the tool failed")
    return parts if len(texts) < len(parts) else "\n".join(texts)


def _part(content: dict[str, Any], hidden: Callable[[str], str]) -> Part:
    content = content.get("resource", content)
    kind = content.get("mimeType", "")
    binary = content.get("data") or content.get("blob")
    if binary and kind.startswith("image/"):
        url = f"data:{kind};base64,{binary}"
        return NeMoGymResponseInputImage(type="input_image", image_url=url, detail="auto")
    text = content.get("text")
    if text is None:
        described = {name: value for name, value in content.items() if name not in BINARY}
        text = orjson.dumps(described).decode()
    return NeMoGymResponseInputText(type="input_text", text=hidden(text))
