"""Continue answers that an engine has aborted, for example for new weights, from the tokens sampled so far."""

import time

from nemo_gym import DataError, EndpointError, NeMoGymAsyncOpenAI
from nemo_gym.jsonl import JsonObject
from responses_api_models.vllm_model.tokens import span_since

ABORTS_WITHOUT_TOKENS = 10
"""The number of aborted calls in a row without a further token after which an answer fails."""
OVERLOADED = 503
LISTS_OF_LOGPROBS = ("tokens", "token_logprobs", "top_logprobs")


async def complete_in_parts(endpoint: NeMoGymAsyncOpenAI, params: JsonObject) -> JsonObject:
    """Return a text completion. If the engine aborts it, ask for the rest with the sampled tokens in the prompt.

    The `sampling_spans` of the choice say when each part was sampled. Raise `EndpointError` if the engine aborts calls
    again and again before their first token.
    """
    whole: JsonObject | None = None
    aborts = 0
    while aborts < ABORTS_WITHOUT_TOKENS:
        began_at = time.time()
        part = await endpoint.create_completion(accepts_parts=True, **_rest(params, whole))
        if not part.get("choices"):
            return part
        (choice,) = part["choices"]
        tokens = choice.get("token_ids")
        if tokens is None:
            raise DataError(
                f"{endpoint.url} returned no token_ids, without which an aborted answer cannot be continued. Leave "
                "partial_rollouts out, or use an engine that supports return_token_ids."
            )
        choice["sampling_spans"] = [{"tokens": len(tokens), **span_since(began_at, part)}]
        whole = part if whole is None else _joined(whole, part)
        if choice.get("finish_reason") != "abort":
            return whole
        if len(whole["choices"][0]["token_ids"]) >= params["max_tokens"]:
            whole["choices"][0]["finish_reason"] = "length"
            return whole
        aborts = 0 if tokens else aborts + 1
    raise EndpointError(
        f"{endpoint.url} aborted an answer {ABORTS_WITHOUT_TOKENS} times in a row without a further token. The "
        "engine's log may have the cause.",
        status=OVERLOADED,
    )


def _rest(params: JsonObject, whole: JsonObject | None) -> JsonObject:
    """Return the parameters that ask for the rest of an answer."""
    sampled = whole["choices"][0]["token_ids"] if whole else []
    limits = {"max_tokens": params["max_tokens"] - len(sampled)}
    if params.get("min_tokens"):
        limits["min_tokens"] = max(0, params["min_tokens"] - len(sampled))
    return {**params, "prompt": [*params["prompt"], *sampled], **limits}


def _joined(whole: JsonObject, part: JsonObject) -> JsonObject:
    """Return an answer with a further part at its end."""
    before, after = whole["choices"][0], part["choices"][0]
    choice = {
        **after,
        "text": before["text"] + after["text"],
        "token_ids": before["token_ids"] + after["token_ids"],
        "prompt_token_ids": before.get("prompt_token_ids"),
        "sampling_spans": [span for span in before["sampling_spans"] + after["sampling_spans"] if span["tokens"]],
    }
    if not after["token_ids"]:
        choice["logprobs"] = before.get("logprobs")
    elif before["token_ids"]:
        lists = [[each["logprobs"].get(name) or () for name in LISTS_OF_LOGPROBS] for each in (before, after)]
        choice["logprobs"] = {
            name: [*first, *second] for name, first, second in zip(LISTS_OF_LOGPROBS, *lists, strict=True)
        }
    return {**part, "choices": [choice], "usage": _usage(whole.get("usage"), part.get("usage"))}


def _usage(whole: JsonObject | None, part: JsonObject | None) -> JsonObject | None:
    """Return the usage of both parts. The prompt counts once, because the engine has read it before."""
    if not whole or not part:
        return None
    output = whole.get("completion_tokens", 0) + part.get("completion_tokens", 0)
    return {**whole, "completion_tokens": output, "total_tokens": whole.get("prompt_tokens", 0) + output}
