"""The token ids and log-probabilities of a completion, put where the converter expects them: in the message."""

from typing import Any

from nemo_gym import DataError

ASK_FOR_TOKENS: dict[str, Any] = {
    "logprobs": True,
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
}
IN_THE_MESSAGE = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
SAID = ("content", "reasoning_content", "reasoning", "tool_calls")


def lacks_prompt_tokens(completion: dict[str, Any]) -> bool:
    """Whether the endpoint left the prompt's tokens out, as older engines do."""
    return completion.get("prompt_token_ids") is None and any(
        choice["message"].get("prompt_token_ids") is None for choice in completion["choices"]
    )


def move_tokens_into_messages(completion: dict[str, Any], prompt: list[int] | None, *, keeps_logprobs: bool) -> None:
    """Give each message its three token fields and take them from elsewhere, so that they travel once.

    `prompt` stands in for prompt tokens that the completion lacks. Raises `DataError` where tokens are missing, or
    their log-probabilities do not match: training on them would go wrong unseen.
    """
    shared = completion.pop("prompt_token_ids", None)
    shared = prompt if shared is None else shared
    completion.pop("prompt_logprobs", None)
    for choice in completion["choices"]:
        message = choice["message"]
        token_ids, logprobs = choice.pop("token_ids", None), choice.get("logprobs")
        if not keeps_logprobs:
            choice["logprobs"] = None
        if all(message.get(name) is not None for name in IN_THE_MESSAGE):
            continue
        tokens = (logprobs or {}).get("content") or []
        generated = _token_ids_of(tokens) if token_ids is None else token_ids
        is_silent = not any(message.get(name) for name in SAID)
        if not shared or len(generated) != len(tokens) or None in generated or not (tokens or is_silent):
            raise DataError(
                f"return_token_id_information is on, but the endpoint answered {len(shared or [])} prompt tokens, "
                f"{len(generated)} generated ones and {len(tokens)} log-probabilities. Use an engine that answers "
                "`return_token_ids` and `logprobs`, or switch return_token_id_information off."
            )
        message["prompt_token_ids"] = shared
        message["generation_token_ids"] = generated
        message["generation_log_probs"] = [token["logprob"] for token in tokens]


def _token_ids_of(tokens: list[dict[str, Any]]) -> list[int | None]:
    # With `return_tokens_as_token_ids` a token's text is "token_id:<number>".
    names = [token["token"].removeprefix("token_id:") for token in tokens]
    return [int(name) if name.isdecimal() else None for name in names]
