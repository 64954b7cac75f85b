"""Parse the tool calls that a model writes into its text in the Hermes format: `<tool_call>{…}</tool_call>`."""

import re

from nemo_gym.jsonl import JsonObject, dump_json, loads_exact

# The last closing tag is optional: if it is the model's stop token, text completions omit it.
CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def calls_and_text(text: str) -> tuple[list[JsonObject], str]:
    """Return the tool calls in a text as `{name, arguments}` objects, and the text without them.

    `arguments` is JSON text. If any call is malformed, return no calls and the whole text, because executing only some
    of the calls would mislead the model.
    """
    calls = [_call(found) for found in CALL.findall(text)]
    if not calls or None in calls:
        return [], text
    return [call for call in calls if call is not None], CALL.sub("", text).strip()


def _call(text: str) -> JsonObject | None:
    try:
        call = loads_exact(text)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = dump_json(arguments).decode()
    return {"name": call["name"], "arguments": arguments}
