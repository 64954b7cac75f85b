"""Convert a rollout to a trajectory in Harbor's Agent Trajectory Interchange Format (ATIF)."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from mimetypes import guess_type
from typing import Any, Final
from urllib.parse import urlsplit

from nemo_gym.data.media_files import MediaFiles
from nemo_gym.dialects.thinking import split_thinking
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.usage import usage_of
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.shapes import MessageJson, Part, ToolCall, ToolDefinition
from nemo_gym.schemas.tokens import TOKEN_METADATA_FIELDS
from nemo_gym.text import with_article
from nemo_gym.training.conversations import Conversation, Unusable
from nemo_gym.version import __version__

SCHEMA_VERSION = "ATIF-v1.8"
IMAGE_PART: Final = "image_url"
AUDIO_PART: Final = "input_audio"
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "m4a": "audio/mp4", "aac": "audio/aac", "ogg": "audio/ogg",
               "flac": "audio/flac", "webm": "audio/webm", "aiff": "audio/aiff"}  # fmt: skip
"""The media type of each format of audio that ATIF allows."""
EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"} | {
    media_type: extension for extension, media_type in AUDIO_TYPES.items()
}
"""The media types that ATIF allows, with the extensions of their files."""
_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+);base64,")
PROMPT_IDS, SAMPLED_IDS, LOG_PROBS, ROUTED_EXPERTS, _ = TOKEN_METADATA_FIELDS


def atif(rollout: Conversation) -> Mapping[str, object]:
    """Return a whole conversation as a trajectory. Raise `Unusable` if the format cannot express it."""
    row = rollout.row
    assert row is not None
    steps: list[JsonObject] = []
    for number, message in enumerate(rollout.prompt + rollout.completion):
        if message["role"] == "tool":
            _add_result(steps, message)
        else:
            is_context = number < len(rollout.prompt)
            steps.append({"step_id": len(steps) + 1, **_step(message, is_context=is_context)})
    return {
        "schema_version": SCHEMA_VERSION,
        **_present(session_id=_session_id(row)),
        "agent": _agent(row, rollout.tools),
        "steps": steps,
        "final_metrics": _final_metrics(row, len(steps)),
        "extra": row.identity,
    }


def _session_id(row: Row) -> str | None:
    try:
        return row.rollout_id
    except ValueError as error:
        raise DataError(f"{error}.") from error


def _agent(row: Row, tools: list[ToolDefinition]) -> Mapping[str, object]:
    model = (row.response or {}).get("model")
    return {
        "name": row.agent or "unknown",
        "version": __version__,
        **_present(model_name=model or None, tool_definitions=tools or None),
    }


def _step(message: MessageJson, *, is_context: bool) -> Mapping[str, object]:
    content = _content(message)
    if message["role"] != "assistant":
        return {"source": "user" if message["role"] == "user" else "system", "message": content}
    if not isinstance(content, str):
        raise Unusable("unsupported: an image in an assistant's message (atif)")
    thought = split_thinking(content)
    calls = [_tool_call(call) for call in message.get("tool_calls", ())]
    return {
        "source": "agent",
        "message": thought.rest,
        **_present(
            reasoning_content="\n\n".join(thought.reasoning) or None,
            tool_calls=calls or None,
            metrics=_metrics(message),
            # Mark the assistant's messages in the row as copied: they are examples or history that this policy did not
            # write.
            is_copied_context=is_context or None,
        ),
    }


def _tool_call(call: ToolCall) -> Mapping[str, object]:
    function = call["function"]
    return {"tool_call_id": call["id"], "function_name": function["name"], "arguments": function["arguments"]}


def _add_result(steps: list[JsonObject], message: MessageJson) -> None:
    """Add the result of a tool call to the step that contains the call."""
    call_id = message["tool_call_id"]
    for step in reversed(steps):
        if any(call["tool_call_id"] == call_id for call in step.get("tool_calls", ())):
            result = {"source_call_id": call_id, "content": _content(message)}
            step.setdefault("observation", {"results": []})["results"].append(result)
            return
    raise Unusable("unsupported: a tool result without its call (atif)")


def _content(message: MessageJson) -> str | list[Part]:
    content = message["content"]
    return [_part(part) for part in content] if isinstance(content, list) else content or ""


def _part(part: Part) -> Part:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    media_type: str | None
    if part["type"] == AUDIO_PART:
        kind, given = "audio", part[AUDIO_PART]
        media_type = AUDIO_TYPES.get(given.get("format"), f"audio/{given.get('format')}")
        url = f"data:{media_type};base64,{given.get('data')}"
    elif part["type"] == IMAGE_PART:
        kind, url = "image", part[IMAGE_PART]["url"]
        media_type = guess_type(urlsplit(url).path)[0]
    else:
        raise Unusable(f"unsupported: content of type '{part['type']}' (atif)")
    if (data := _DATA_URL.match(url)) is not None:
        media_type = data["type"]
        try:
            b64decode(url[data.end() :], validate=True)
        except ValueError as error:
            raise Unusable(f"unsupported: {with_article(kind)} with invalid base64 data (atif)") from error
    if media_type not in EXTENSIONS:
        raise Unusable(f"unsupported: {with_article(kind)} of type '{media_type or 'unknown'}' (atif)")
    return {"type": kind, "source": {"media_type": media_type, "path": url}}


def with_media_in_files(trajectory: Mapping[str, Any], files: MediaFiles) -> Mapping[str, object]:
    """Save images and audio of a trajectory to files, and return the trajectory with their paths instead of data."""
    return {**trajectory, "steps": [_with_files(step, files) for step in trajectory["steps"]]}


def _with_files(step: Mapping[str, object], files: MediaFiles) -> Mapping[str, object]:
    message = step["message"]
    return {**step, "message": [_saved(part, files) for part in message]} if isinstance(message, list) else step


def _saved(part: Part, files: MediaFiles) -> Part:
    data = _DATA_URL.match(part["source"]["path"]) if "source" in part else None
    if data is None:
        return part
    content = b64decode(data.string[data.end() :])
    return {**part, "source": {**part["source"], "path": files.save(content, part["type"], EXTENSIONS[data["type"]])}}


def _metrics(message: Mapping[str, Any]) -> Mapping[str, object] | None:
    if message.get(SAMPLED_IDS) is None:
        return None
    experts = message.get(ROUTED_EXPERTS)
    return {
        "prompt_tokens": len(message[PROMPT_IDS]),
        "completion_tokens": len(message[SAMPLED_IDS]),
        "prompt_token_ids": message[PROMPT_IDS],
        "completion_token_ids": message[SAMPLED_IDS],
        "logprobs": message[LOG_PROBS],
        **_present(extra=None if experts is None else {ROUTED_EXPERTS: experts}),
    }


def _final_metrics(row: Row, steps: int) -> Mapping[str, object]:
    usage = usage_of(row.usage)
    return {
        **_present(
            total_prompt_tokens=usage.tokens_in,
            total_completion_tokens=usage.tokens_out,
            # Leave out a count of 0, because the count may also be 0 if the endpoint does not report it.
            total_cached_tokens=usage.cached_tokens or None,
        ),
        "total_steps": steps,
        "extra": {"reward": row.reward, **_present(reward_components=row.fields.get("reward_components"))},
    }


def _present(**fields: object) -> Mapping[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
