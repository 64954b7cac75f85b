"""Convert providers' nonstandard completions to the standard form."""

from uuid import uuid4

import orjson

from nemo_gym import EndpointError
from nemo_gym.jsonl import JsonObject

COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def tidied(completion: JsonObject, model: str) -> JsonObject:
    """Return a completion with an id for each tool call and all required fields, except for the finish reasons.

    Raise `EndpointError` if the provider reports an error with status 200.
    """
    _check(completion)
    choices = [_choice(index, choice) for index, choice in enumerate(completion.get("choices") or [])]
    usage = completion.get("usage")
    if isinstance(usage, dict):
        counts = {name: int(usage.get(name) or 0) for name in COUNTS}
        usage = {**usage, **counts, "total_tokens": counts["total_tokens"] or sum(counts.values())}
    return {
        **completion,
        "id": completion.get("id") or "chatcmpl-unnamed",
        "object": "chat.completion",
        "created": int(completion.get("created") or 0),
        "model": completion.get("model") or model,
        "choices": choices,
        "usage": usage if isinstance(usage, dict) else None,
    }


def _check(completion: JsonObject) -> None:
    choices = completion.get("choices") or []
    failures = [completion, *(choice for choice in choices if choice.get("finish_reason") == "error")]
    error = next((failure["error"] for failure in failures if failure.get("error")), None)
    if error is None and len(failures) == 1:
        return
    known = error if isinstance(error, dict) else {"message": error}
    code = known.get("code")
    message = f"the provider answered with an error instead of a completion: {known.get('message')}"
    raise EndpointError(message, status=code if isinstance(code, int) else None, body=str(known.get("message")))


def _choice(index: int, choice: JsonObject) -> JsonObject:
    message = {**(choice.get("message") or {}), "role": "assistant"}
    calls = _with_ids([_call(call) for call in message.pop("tool_calls", None) or []])
    if calls:
        message["tool_calls"] = calls
    if isinstance(message.get("content"), list):
        message["content"], thoughts = _text_and_thoughts(message["content"])
        if thoughts:
            message["reasoning_content"] = thoughts
    else:
        message.setdefault("content", None)
    return {**choice, "index": choice.get("index", index), "message": message}


def _call(call: JsonObject) -> JsonObject:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    return {
        **call,
        "type": "function",
        "function": {**function, "name": function.get("name") or "", "arguments": text},
    }


def _with_ids(calls: list[JsonObject]) -> list[JsonObject]:
    """Return the calls with unique ids, because tool results are matched to calls by id."""
    ids = [call.get("id") for call in calls]
    return [
        call if call.get("id") and call["id"] not in ids[:number] else {**call, "id": f"call_{uuid4().hex}"}
        for number, call in enumerate(calls)
    ]


def _text_and_thoughts(parts: list[JsonObject]) -> tuple[str, str]:
    """Return the text of a message's parts, and the reasoning, which Mistral sends in separate parts."""
    texts, thoughts = [], []
    for part in parts:
        if part.get("type") == "thinking":
            inner = part.get("thinking") or []
            thoughts += [inner] if isinstance(inner, str) else [str(each.get("text") or "") for each in inner]
        else:
            texts.append(str(part.get("text") or ""))
    return "".join(texts), "".join(thoughts)
