"""Replace the sampling parameters of requests with those of the config."""

from nemo_gym import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.jsonl import JsonObject

LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The fields that limit the answer's length, in Chat Completions and in Responses."""
ECHOED = ("temperature", "top_p", "max_output_tokens")
"""The request parameters that a response repeats."""
NOT_SAMPLING = (
    "chat_template_kwargs", "input", "messages", "metadata", "model", "prompt", "stream", "stream_options",
    "tool_choice", "tools",
)  # fmt: skip


def checked(overrides: JsonObject) -> JsonObject:
    """Return the overrides with a length limit renamed to `max_tokens`.

    Raise `ValueError` for a field that is not a sampling parameter, or for several length limits.
    """
    other = next((name for name in overrides if name in NOT_SAMPLING), None)
    if other is not None:
        raise ValueError(f"'{other}' is not a sampling parameter. Remove it from sampling_overrides")
    lengths = [name for name in overrides if name in LENGTHS]
    if len(lengths) > 1:
        raise ValueError(f"{' and '.join(lengths)} mean the same. Set only one in sampling_overrides")
    return {"max_tokens" if name in LENGTHS else name: value for name, value in overrides.items()}


def layered(fields: JsonObject, more: JsonObject) -> JsonObject:
    """Return the fields with those of `more` on top. A length limit replaces the limits under all names."""
    replaced = {*more, *(() if more.keys().isdisjoint(LENGTHS) else LENGTHS)}
    return {name: value for name, value in fields.items() if name not in replaced} | more


def overridden(fields: JsonObject, overrides: JsonObject) -> JsonObject:
    """Return a request's fields with the overrides applied. An override of null removes the field."""
    replaced = layered(fields, overrides)
    return {name: value for name, value in replaced.items() if name not in overrides or value is not None}


def as_sampled(
    params: NeMoGymResponseCreateParamsNonStreaming, overrides: JsonObject
) -> NeMoGymResponseCreateParamsNonStreaming:
    """Return a request with the overridden parameters, so that its response repeats the values that were sent."""
    sent = {"max_output_tokens" if name == "max_tokens" else name: value for name, value in overrides.items()}
    return params.model_copy(update={name: sent[name] for name in ECHOED if name in sent})
