"""Bring completions of all endpoints into the standard form of Chat Completions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from nemo_gym.dialects.calls import unique_ids
from nemo_gym.dialects.finish_reasons import standard_reason
from nemo_gym.dialects.responses import seconds_of
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.records.usage import standard_usage
from nemo_gym.schemas.shapes import AnswerJson, ChoiceJson, MessageJson, ToolCall

SAID = ("content", "tool_calls", "function_call", "refusal")
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
CUT_OFF = ("length", "content_filter")
TOKENS = ("prompt_token_ids", "generation_token_ids")

logger = logging.getLogger(__name__)


def standard_completion(completion: AnswerJson, *, url: str, model: str, n: object = None) -> AnswerJson:
    """Return a completion with every required field, unique call ids, and finish reasons of Chat Completions.

    `n` is the number of answers that the request asked for. Parts of one answer in several choices are joined.
    Raise `DataError` with the reason if the answer cannot be read.
    """
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        raise DataError(f"{url} returned a completion without choices")
    if len(choices) == 1 and _is_standard(completion, choices[0]):
        choices[0]["finish_reason"] = standard_reason(choices[0], url)
        return completion
    tidied = [_choice(at, each, url) for at, each in enumerate(choices)]
    if len(tidied) > 1:
        tidied = _in_order(tidied, url, is_one_answer=n in (None, 1))
    return {
        **completion,
        "id": _text_or(completion.get("id"), "chatcmpl-unnamed"),
        "object": "chat.completion",
        "created": int(seconds_of(completion.get("created"))),
        "model": _text_or(completion.get("model"), model),
        "choices": tidied,
        "usage": _usage(completion.get("usage"), says=any(map(_says, tidied))),
    }


def _usage(usage: object, *, says: bool) -> Mapping[str, object] | None:
    """Return the token counts of a completion, or None if the endpoint did not count. `says`: the answer has text."""
    counts = standard_usage(usage, COUNTS)
    return None if counts is None or (says and not counts["completion_tokens"]) else counts


def _is_standard(completion: AnswerJson, choice: ChoiceJson | None) -> bool:
    """Return whether a completion with one choice needs no changes, except for its finish reason."""
    if not isinstance(choice, dict) or not isinstance(message := choice.get("message"), dict):
        return False
    usage, content = completion.get("usage"), message.get("content")
    calls = message.get("tool_calls")
    return (
        type(choice.get("index")) is int
        and (type(content) is str or (content is None and "content" in message))
        and message.get("role") == "assistant"
        and not message.get("function_call")
        and (calls is None or (type(calls) is list and _are_standard(calls)))
        and type(choice.get("logprobs")) in (dict, type(None))
        and all(type(message.get(name)) in (str, type(None)) for name in ("refusal", "reasoning_content", "reasoning"))
        and type(completion.get("id")) is str
        and completion.get("object") == "chat.completion"
        and type(completion.get("model")) is str
        and type(completion.get("created")) is int
        and (usage is None or _usage(usage, says=_says(choice)) == usage)
    )


def _are_standard(calls: list[ToolCall]) -> bool:
    ids = set()
    for call in calls:
        if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
            return False
        if not (type(function.get("name")) is type(function.get("arguments")) is type(call.get("id")) is str):
            return False
        if call.get("type") != "function":
            return False
        ids.add(call["id"])
    return len(ids) == len(calls) and "" not in ids


def _choice(at: int, choice: ChoiceJson | None, url: str) -> ChoiceJson:
    given: MessageJson | None = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(given or {}, dict):
        raise DataError(f"{url} returned a completion whose choices[{at}] is not an object with a message")
    message: MessageJson = {**(given or MessageJson()), "role": "assistant"}
    calls = _calls(message, url)
    if calls:
        message["tool_calls"] = calls
    content = message.setdefault("content", None)
    if isinstance(content, list):
        message["content"], thoughts = _text_and_thoughts(content)
        if thoughts:
            message["reasoning_content"] = thoughts
    elif not isinstance(content, str | None):
        raise DataError(f"{url} returned a message whose content is of type {type(content).__name__}, not text")
    for name in ("refusal", "annotations"):
        if name in message and not isinstance(message[name], str if name == "refusal" else list):
            message[name] = None
    logprobs = choice.get("logprobs")
    index = choice.get("index")
    return {
        **choice,
        "index": index if isinstance(index, int) else at,
        "message": message,
        "logprobs": logprobs if isinstance(logprobs, dict) else None,
        "finish_reason": standard_reason({**choice, "message": message}, url),
    }


def _says(choice: ChoiceJson) -> bool:
    return any(choice["message"].get(name) for name in SAID)


def _text_or(value: object, default: str) -> str:
    return value if isinstance(value, str) and value else default


def _calls(message: MessageJson, url: str) -> list[ToolCall]:
    calls, legacy = message.pop("tool_calls", None) or [], message.pop("function_call", None)
    if legacy and not calls:
        # The form of a call before `tool_calls`, which older gateways still send.
        calls = [{"function": legacy}]
    if not isinstance(calls, list):
        raise DataError(f"{url} returned tool_calls of type {type(calls).__name__}, not a list")
    tidied = [_call(call, url) for call in calls]
    ids = unique_ids(call.get("id") for call in tidied)
    return [{**call, "id": call_id} for call, call_id in zip(tidied, ids, strict=True)]


def _call(call: ToolCall | None, url: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        kind = call.get("type") if isinstance(call, dict) else type(call).__name__
        raise DataError(
            f"{url} returned a tool call of type '{kind}', which cannot be run here. "
            "Offer the model only function tools."
        )
    arguments, name = function.get("arguments"), function.get("name")
    text = arguments if isinstance(arguments, str) else dump_json({} if arguments is None else arguments).decode()
    return {
        **call,
        "type": "function",
        "function": {**function, "name": name if isinstance(name, str) else "", "arguments": text},
    }


def _in_order(choices: list[ChoiceJson], url: str, *, is_one_answer: bool) -> list[ChoiceJson]:
    """Return the choices by index. If one answer was requested, join them, because each may have a part of it."""
    ordered = sorted(choices, key=lambda choice: choice["index"])
    if not is_one_answer:
        return ordered
    if not any(choice["message"].get("tool_calls") for choice in choices) and ordered != choices:
        # Only alternatives are listed out of order: parts of one answer arrive in their order.
        _warn_of_alternatives(url)
        return ordered[:1]
    messages = [choice["message"] for choice in ordered]
    texts = [message["content"] for message in messages if message["content"]]
    if len(texts) > 1 or any(name in message for message in messages for name in TOKENS):
        raise DataError(
            f"{url} returned {len(choices)} choices with {len(texts)} texts, although one answer was requested. Set "
            "n to 1 in extra_body or at the endpoint."
        )
    joined: JsonObject = {name: value for message in messages for name, value in message.items() if value is not None}
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    joined["content"] = texts[0] if texts else None
    if calls:
        ids = unique_ids(call["id"] for call in calls)
        joined["tool_calls"] = [{**call, "id": call_id} for call, call_id in zip(calls, ids, strict=True)]
    finish = "tool_calls" if calls else ordered[0]["finish_reason"]
    cut_off = next((each["finish_reason"] for each in ordered if each["finish_reason"] in CUT_OFF), finish)
    return [{**ordered[0], "message": joined, "finish_reason": cut_off}]


@lru_cache(maxsize=256)
def _warn_of_alternatives(url: str) -> None:
    logger.warning(
        "%s: it returns several answers, although one was requested. Only the one with index 0 counts.", url
    )


def _text_and_thoughts(parts: list[object]) -> tuple[str, str]:
    """Return the text of a message's parts, and the reasoning, which Mistral sends in separate parts."""
    texts, thoughts = [], []
    for part in parts:
        if not isinstance(part, dict):
            texts.append(part if isinstance(part, str) else "")
        elif part.get("type") == "thinking":
            inner = part.get("thinking") or []
            inner = [{"text": inner}] if isinstance(inner, str) else inner
            thoughts += [str(each.get("text") or "") for each in inner if isinstance(each, dict)]
        else:
            texts.append(str(part.get("text") or ""))
    return "".join(texts), "".join(thoughts)
