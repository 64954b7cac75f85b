"""Aviary's messages and tools converted to Responses API items."""

import pytest

from nemo_gym import NeMoGymResponseCreateParamsNonStreaming

# See test_app.py.
pytest.importorskip("aviary.core", reason="Aviary is an extra: pip install 'nemo-gym[aviary]'")

from aviary.core import (
    FunctionInfo,
    Message,
    Tool,
    ToolCall,
    ToolRequestMessage,
    ToolResponseMessage,
)

from resources_servers.aviary.messages import definition_of, observed, text_of

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = ToolCall.from_name("look", id="call_1", where="up")


@pytest.mark.parametrize(
    ("message", "items"),
    [
        (Message(content="a"), [{"type": "message", "role": "user", "content": "a"}]),
        (Message(role="system", content="a"), [{"type": "message", "role": "system", "content": "a"}]),
        (Message(role="assistant", content="a"), [{"type": "message", "role": "assistant", "content": "a"}]),
        (Message(role="function", content="a"), [{"type": "message", "role": "user", "content": "a"}]),
        (Message(role="tool", content="a"), [{"type": "message", "role": "user", "content": "a"}]),
        (Message(content={"a": 1}), [{"type": "message", "role": "user", "content": '{"a": 1}'}]),
        (Message(), []),
        (Message(content=""), []),
        (
            Message(content=[{"type": "text", "text": "See:"}, IMAGE]),
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "See:"},
                        {"type": "input_image", "detail": "auto", "image_url": IMAGE["image_url"]["url"]},
                    ],
                }
            ],
        ),
        (
            ToolRequestMessage(content="Let me look.", tool_calls=[CALL]),
            [
                {"type": "message", "role": "assistant", "content": "Let me look."},
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"where": "up"}'},
            ],
        ),
        (
            ToolResponseMessage(content="a star", name="look", tool_call_id="of no call"),
            [{"type": "message", "role": "user", "content": "a star"}],
        ),
    ],
)
def test_message_becomes_valid_input_items(message, items):
    assert observed([message]) == items
    NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})


def test_first_observation_may_contain_a_call_and_output():
    shown = [ToolRequestMessage(tool_calls=[CALL]), ToolResponseMessage.from_call(CALL, content="a star")]
    assert [item["type"] for item in observed(shown)] == ["function_call", "function_call_output"]


def test_tool_without_arguments_has_an_empty_schema():
    tool = Tool(info=FunctionInfo(name="look", description="Look.", parameters=None))
    assert definition_of(tool)["parameters"] == {"type": "object", "properties": {}, "required": []}


def test_items_are_joined_into_one_text():
    items = observed([Message(content="a"), Message(content=[{"type": "text", "text": "b"}])])
    assert text_of(items) == 'a\n[{"type": "input_text", "text": "b"}]'
