"""Responses API requests as found in dataset rows."""

from __future__ import annotations

from nemo_gym.schemas.items import HostedItem, McpCall
from nemo_gym.schemas.responses import Response, ResponseCreateParams
from tests.each_case import each_case


def test_null_tools_and_tool_choice_mean_the_defaults():
    params = ResponseCreateParams.model_validate({"input": "hi", "tools": None, "tool_choice": None})
    assert (params.tools, params.tool_choice) == ([], "auto")


@each_case(
    "message",
    [
        {"content": "Two."},
        {"content": [{"type": "output_text", "text": "Two"}, {"type": "output_text", "text": "."}]},
        {"content": [{"type": "output_text", "text": "Two."}, {"type": "refusal", "refusal": "No."}]},
    ],
)
def test_assistant_message_without_id_is_part_of_text(message):
    said = {"type": "message", "role": "assistant"}
    first = {**said, "id": "m", "content": [{"type": "output_text", "text": "One."}]}
    heard = {"type": "message", "role": "user", "content": "Go on."}
    output = [first, heard, {**said, **message}, heard]
    response = Response.model_validate({"id": "r", "created_at": 0, "model": "m", "output": output})
    assert (response.last_text, response.output_text) == ("Two.", "One.Two.")


@each_case(("left_out", "kind"), [((), McpCall), (("server_label",), HostedItem)])
def test_mcp_call_of_an_endpoint_is_kept(left_out, kind):
    call = {"type": "mcp_call", "id": "c", "name": "look", "arguments": "{}", "server_label": "sky", "own": 1}
    given = {key: value for key, value in call.items() if key not in left_out}
    (item,) = ResponseCreateParams.model_validate({"input": [given]}).input
    assert (type(item), item.model_dump(exclude_unset=True)) == (kind, given)
    made = McpCall(id="c", name="look", arguments="{}", server_label="sky")
    assert made.model_dump(exclude_unset=True)["type"] == "mcp_call"
