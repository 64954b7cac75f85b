"""Move the token ids and log-probabilities of a completion into its messages, where the converter expects them."""

import math
import operator
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nemo_gym import DataError
from nemo_gym.jsonl import JsonObject

TokenT = TypeVar("TokenT")

ASK_FOR_TOKENS: JsonObject = {
    "logprobs": True,
    # Unless a request wants alternative tokens, ask for none, because they would multiply the size of the response.
    "top_logprobs": 0,
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
}
TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts", "sampling_spans")
"""The fields of a message that hold its tokens."""
SAID = ("content", "reasoning_content", "reasoning", "tool_calls")


def lacks_prompt_tokens(completion: JsonObject) -> bool:
    """Return whether the endpoint left out the prompt's tokens, as older engines do."""
    return completion.get("prompt_token_ids") is None and any(
        choice["message"].get("prompt_token_ids") is None for choice in completion["choices"]
    )


def span_since(began_at: float, completion: JsonObject) -> JsonObject:
    """Return the span of time of a call, with the version of the weights if the engine reports it, as SGLang does."""
    metadata = completion.get("metadata")
    version = metadata.get("weight_version") if isinstance(metadata, dict) else None
    span: JsonObject = {"began_at": round(began_at, 6), "ended_at": round(time.time(), 6)}
    return span if version is None else {**span, "weight_version": str(version)}


def move_tokens_into_messages(
    completion: JsonObject, prompt: list[int] | None, span: JsonObject, *, keeps_logprobs: bool
) -> None:
    """Give each message its token fields and remove the other copies, so that each list is sent only once.

    `prompt` replaces prompt tokens that the completion lacks. `span` is that of tokens without `sampling_spans`.
    Raise `DataError` if tokens are missing, or if two fields of the completion contradict each other, because
    training on them would silently go wrong.
    """
    shared = completion.pop("prompt_token_ids", None)
    completion.pop("prompt_logprobs", None)
    for choice in completion["choices"]:
        message = choice["message"]
        tokens = (choice.get("logprobs") or {}).get("content") or []
        copies = {"prompt_token_ids": shared, "message.prompt_token_ids": message.get("prompt_token_ids")}
        prompts = _agreed("prompt tokens", copies) or prompt or []
        generated = _agreed(
            "generated tokens",
            {
                "message.generation_token_ids": message.get("generation_token_ids"),
                "token_ids": choice.pop("token_ids", None),
                "logprobs": _token_ids_of(tokens),
            },
        )
        log_probs = _agreed(
            "log-probabilities",
            {
                "message.generation_log_probs": message.get("generation_log_probs"),
                "logprobs": [token["logprob"] for token in tokens] or None,
            },
            are_equal=_are_close,
        )
        if not keeps_logprobs:
            choice["logprobs"] = None
        is_silent = not any(message.get(name) for name in SAID)
        if not prompts or len(generated) != len(log_probs) or not (generated or is_silent):
            raise DataError(
                f"return_token_id_information is on, but the endpoint returned {len(prompts)} prompt tokens, "
                f"{len(generated)} generated ones and {len(log_probs)} log-probabilities. Use an engine that supports "
                "`return_token_ids` and `logprobs`, or switch return_token_id_information off."
            )
        message["prompt_token_ids"] = prompts
        message["generation_token_ids"] = generated
        message["generation_log_probs"] = log_probs
        message.setdefault("sampling_spans", [{"tokens": len(generated), **span}])


def _agreed(
    what: str,
    sources: dict[str, list[TokenT] | None],
    are_equal: Callable[[list[TokenT], list[TokenT]], bool] = operator.eq,
) -> list[TokenT]:
    """Return the values of the present sources, which must be equal, or an empty list if no source is present.

    Raise `DataError` if two sources differ.
    """
    present = {place: values for place, values in sources.items() if values is not None}
    if not present:
        return []
    first, *others = present
    for other in others:
        if not are_equal(present[first], present[other]):
            raise DataError(
                f"return_token_id_information is on, but the {what} in the answer's {first} "
                f"({len(present[first])}) differ from those in {other} ({len(present[other])}). Training on either "
                "would be a guess: check the engine's version and its parsers."
            )
    return present[first]


def _are_close(one: list[float], other: list[float]) -> bool:
    # Compare with a tolerance, because engines may round the two copies differently.
    is_close = partial(math.isclose, rel_tol=1e-4, abs_tol=1e-6)
    return len(one) == len(other) and all(map(is_close, one, other))


def _token_ids_of(tokens: list[JsonObject]) -> list[int] | None:
    """Return the ids that `return_tokens_as_token_ids` writes as "token_id:<number>", or None if they are missing."""
    names = [token["token"].removeprefix("token_id:") for token in tokens]
    return [int(name) for name in names] if names and all(map(str.isdecimal, names)) else None
