"""Convert the fields of calls in which litellm returns a provider's own state."""

from nemo_gym.dialects.chat_answers import OPAQUE
from nemo_gym.jsonl import JsonObject

OWN_FIELDS = "provider_specific_fields"


def answer_of(completion: JsonObject) -> JsonObject:
    """Return a completion of litellm with the providers' own state in fields that later requests contain unchanged."""
    for choice in completion["choices"]:
        message = choice["message"]
        message.pop(OWN_FIELDS, None)
        for call in message.get("tool_calls") or ():
            # Gemini's signature of a call.
            own = call.pop(OWN_FIELDS, None)
            if own:
                call[OPAQUE] = {OWN_FIELDS: own}
    return completion


def sendable_message(message: JsonObject) -> JsonObject:
    """Return a message in the form that litellm expects."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_sendable_call(call) for call in calls]} if calls else message


def _sendable_call(call: JsonObject) -> JsonObject:
    own = call.get(OPAQUE) or {}
    if OWN_FIELDS not in own:
        return call
    return {**{name: value for name, value in call.items() if name != OPAQUE}, OWN_FIELDS: own[OWN_FIELDS]}
