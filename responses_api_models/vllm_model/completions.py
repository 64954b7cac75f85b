"""Answer a chat request with the engine's `/completions`: render the prompt, post its tokens, and parse the text."""

from uuid import uuid4

from nemo_gym import DataError, NeMoGymAsyncOpenAI
from nemo_gym.dialects.thinking import split_thinking, wrapped_in_think_tags
from nemo_gym.jsonl import JsonObject
from responses_api_models.vllm_model.hermes import calls_and_text
from responses_api_models.vllm_model.partial import complete_in_parts
from responses_api_models.vllm_model.templates import TEMPLATE_FIELDS, ChatTemplate, Prompt

ONLY_IN_CHAT = frozenset({
    *TEMPLATE_FIELDS, "include_reasoning", "logprobs", "max_completion_tokens", "modalities", "parallel_tool_calls",
    "reasoning_effort", "service_tier", "store", "tool_choice", "top_logprobs", "verbosity",
})  # fmt: skip
TAIL = 8
"""The number of tokens at the end of a prompt that are searched for an opening `<think>`."""


async def complete_prompt(
    endpoint: NeMoGymAsyncOpenAI, template: ChatTemplate, fields: JsonObject, *, continues: bool = False
) -> JsonObject | None:
    """Return a chat completion for the fields of a chat request, or None if its prompt fills the context.

    `continues` says whether to continue an answer that the engine aborts. Raise `DataError` for a request that text
    completions cannot answer.
    """
    _check(fields)
    prompt = await template.rendered(_without_unused_tools(fields))
    if prompt.room is not None and prompt.room <= 0:
        return None
    params = _params(fields, prompt)
    reply = await (complete_in_parts(endpoint, params) if continues else endpoint.create_completion(**params))
    choices = reply.get("choices") or []
    # If the prompt ends with `<think>`, a text without tags is reasoning that was cut off.
    lacks_tags = any("<think>" not in each["text"] and "</think>" not in each["text"] for each in choices)
    tail = await template.text_of(prompt.tokens[-TAIL:]) if lacks_tags else ""
    opening = "<think>" if tail.rstrip().endswith("<think>") else ""
    completion = {**reply, "object": "chat.completion"}
    completion["choices"] = [_choice(choice, fields, opening) for choice in choices]
    if fields.get("return_token_ids"):
        completion["prompt_token_ids"] = prompt.tokens
    return completion


def _check(fields: JsonObject) -> None:
    choice = fields.get("tool_choice") or "auto"
    if choice not in ("auto", "none"):
        raise DataError(
            f"tool_choice is {choice!r}, but uses_completions_api is on, and text completions cannot force a call. "
            "Use 'auto', or switch uses_completions_api off."
        )
    for place, message in enumerate(fields["messages"]):
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        other = next((part.get("type") for part in parts if part.get("type") not in ("text", "refusal")), None)
        if other is not None:
            raise DataError(
                f"messages[{place}] has a part of type '{other}', but uses_completions_api is on, and its prompts "
                "have only text. Remove the part, or switch uses_completions_api off."
            )


def _without_unused_tools(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if name != "tools" or fields.get("tool_choice") != "none"}


def _params(fields: JsonObject, prompt: Prompt) -> JsonObject:
    params = {name: value for name, value in fields.items() if name not in ONLY_IN_CHAT}
    limit = fields.get("max_tokens") or fields.get("max_completion_tokens") or prompt.room
    if limit is None:
        raise DataError(
            "the request sets no max_output_tokens, and the context length of the model is unknown. Set "
            "max_output_tokens, or max_tokens in extra_body, because engines complete only 16 tokens by default."
        )
    params |= {"prompt": prompt.tokens, "max_tokens": limit}
    if fields.get("logprobs"):
        params["logprobs"] = fields.get("top_logprobs") or 0
    return params


def _choice(choice: JsonObject, fields: JsonObject, opening: str) -> JsonObject:
    text, finish = choice["text"], choice.get("finish_reason")
    untagged = "<think>" not in text and "</think>" not in text
    message = _message(opening + text if untagged else text, fields)
    if message.get("tool_calls") and finish in (None, "stop"):
        finish = "tool_calls"
    message |= {name: choice[name] for name in ("prompt_token_ids", "sampling_spans") if choice.get(name) is not None}
    answered = {"index": choice.get("index", 0), "message": message, "finish_reason": finish}
    answered["logprobs"] = _chat_logprobs(choice.get("logprobs"))
    return answered if choice.get("token_ids") is None else {**answered, "token_ids": choice["token_ids"]}


def _message(text: str, fields: JsonObject) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": text}
    if not fields.get("tools") or fields.get("tool_choice") == "none":
        return message
    reasoning, rest = split_thinking(text)
    calls, said = calls_and_text(rest)
    if not calls:
        return message
    if fields.get("parallel_tool_calls") is False:
        calls = calls[:1]
    message["content"] = wrapped_in_think_tags(reasoning) + said or None
    message["tool_calls"] = [{"id": f"call_{uuid4().hex}", "type": "function", "function": call} for call in calls]
    return message


def _chat_logprobs(logprobs: JsonObject | None) -> JsonObject | None:
    """Convert the parallel lists of a text completion to the list of tokens of a chat completion."""
    if not logprobs:
        return None
    tokens, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    others = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(values) == len(others):
        raise DataError(
            f"the endpoint returned {len(values)} log-probabilities and {len(others)} sets of alternatives for "
            f"{len(tokens)} tokens. Check the engine's version."
        )
    return {
        "content": [
            {**_token(token, value), "top_logprobs": [_token(*each) for each in (more or {}).items()]}
            for token, value, more in zip(tokens, values, others, strict=True)
        ]
    }


def _token(token: str, value: float) -> JsonObject:
    return {"token": token, "logprob": value, "bytes": list(token.encode())}
