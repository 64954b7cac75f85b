"""Convert the parts of messages between Responses and Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson
from pydantic import TypeAdapter

from nemo_gym.errors import DataError, UnsupportedContentError
from nemo_gym.schemas.items import (
    InputAudio,
    InputFile,
    InputImage,
    InputPart,
    InputText,
    InputVideo,
    OutputRefusal,
    OutputText,
)
from nemo_gym.schemas.shapes import MessageJson, Part

IN_USER_MESSAGE = "The output is in the next user message."
_MEDIA_HEADING = "Output of the tool call "
_INPUT_PARTS: TypeAdapter[list[InputPart]] = TypeAdapter(list[InputPart])


def chat_parts(content: str | Sequence[InputPart]) -> str | list[Part]:
    """Convert a message's content from Responses to Chat Completions."""
    return content if isinstance(content, str) else [_chat_part(part) for part in content]


def _chat_part(part: InputPart) -> Part:
    match part:
        case InputText() | OutputText():
            return {"type": "text", "text": part.text}
        case OutputRefusal():
            return {"type": "text", "text": part.refusal}
        case InputImage():
            if part.image_url is None:
                raise DataError("an input_image part needs an 'image_url', because Chat Completions rejects image ids")
            image = {"url": part.image_url, "detail": part.detail}
            return {"type": "image_url", "image_url": {key: value for key, value in image.items() if value}}
        case InputFile():
            file = {"file_data": part.file_data, "file_id": part.file_id, "filename": part.filename}
            if not part.file_data and not part.file_id:
                raise DataError(
                    "an input_file part needs 'file_data' or 'file_id', because Chat Completions rejects file URLs"
                )
            return {"type": "file", "file": {key: value for key, value in file.items() if value}}
        case InputAudio():
            return {"type": "input_audio", "input_audio": part.input_audio}
        case InputVideo():
            if part.video is not None:
                return {"type": "video", "video": part.video}
            video = part.video_url
            return {"type": "video_url", "video_url": {"url": video} if isinstance(video, str) else video}


def input_parts(content: str | list[Part] | None) -> str | list[InputPart]:
    """Convert a message's content from Chat Completions to Responses."""
    if content is None or isinstance(content, str):
        return content or ""
    return _INPUT_PARTS.validate_python([_input_part(part) for part in content])


def assistant_text(content: str | Sequence[InputPart]) -> str:
    """Return the joined text of an assistant's message, without refusals."""
    if isinstance(content, str):
        return content
    for part in content:
        if not isinstance(part, (OutputText, InputText, OutputRefusal)):
            raise DataError(f"an assistant's message has a part of type '{part.type}', but only text is supported")
    return "".join(part.text for part in content if isinstance(part, (OutputText, InputText)))


def refusals(content: str | Sequence[InputPart]) -> list[str]:
    return [part.refusal for part in content if isinstance(part, OutputRefusal)]


def _input_part(part: Part) -> Mapping[str, object]:
    kind = part.get("type")
    if kind == "text":
        return {"type": "input_text", "text": part["text"]}
    if kind == "refusal":
        return {"type": "refusal", "refusal": part["refusal"]}
    if kind == "image_url":
        image = part["image_url"]
        image = {"url": image} if isinstance(image, str) else image
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
    if kind == "file":
        return {"type": "input_file", **part["file"]}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    if kind == "video_url":
        video = part["video_url"]
        return {"type": "input_video", "video_url": video["url"] if isinstance(video, dict) else video}
    if kind == "video":
        return {"type": "input_video", "video": part["video"]}
    raise DataError(f"a message part of type {kind!r} is not supported by the Responses API")


class ToolContent(NamedTuple):
    """A tool's output for Chat Completions."""

    content: str | list[Part]
    """The content of the tool message. It has only text, because OpenAI rejects other parts in tool messages."""
    media: list[Part]
    """The images, audio, video and files, to be sent in a user message after the tool messages."""


def media_parts(call_id: str, media: list[Part]) -> list[Part]:
    """Return the parts of a user message with the media of one tool output."""
    return [{"type": "text", "text": f"{_MEDIA_HEADING}{call_id}:"}, *media]


def is_of_media(message: MessageJson) -> bool:
    """Return whether a user message of a converted request has only the media of tool outputs."""
    content = message.get("content")
    begin = content[0] if isinstance(content, list) and content else {}
    return begin.get("type") == "text" and str(begin.get("text")).startswith(_MEDIA_HEADING)


def tool_content(output: str | list[object], *, sends_media: bool) -> ToolContent:
    """Convert a tool's output. Entries that are not message parts become JSON text.

    Raise `UnsupportedContentError` for objects that are not text parts, unless `sends_media` is true.
    """
    if isinstance(output, str):
        return ToolContent(output, [])
    parts = [_tool_part(entry, sends_media) for entry in output]
    texts = [part for part in parts if part["type"] == "text"]
    media = [part for part in parts if part["type"] != "text"]
    return ToolContent(IN_USER_MESSAGE if media and not texts else texts, media)


def _tool_part(entry: object, sends_media: bool) -> Part:
    if isinstance(entry, dict):
        kind = entry.get("type")
        if kind in {"input_text", "output_text", "text"} and isinstance(entry.get("text"), str):
            return {"type": "text", "text": entry["text"]}
        if not sends_media:
            raise UnsupportedContentError(
                f"a tool's output has a part of type {kind!r}, but tool messages of Chat Completions contain only text"
            )
        if kind in {"input_image", "input_file", "input_audio", "input_video"}:
            return _chat_part(_INPUT_PARTS.validate_python([entry])[0])
    return {"type": "text", "text": entry if isinstance(entry, str) else orjson.dumps(entry).decode()}


def text_of_parts(content: str | Iterable[Part] | None) -> str:
    """Return the joined text of a Chat Completions message."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text") or "") for part in content)
