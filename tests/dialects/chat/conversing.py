"""Shared test data: converters, items of a conversation, and an endpoint's answer."""

from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    OutputMessage,
    OutputText,
    ReasoningItem,
    Summary,
)
from nemo_gym.schemas.responses import ResponseCreateParams

CONVERTER = ResponsesConverter(return_token_id_information=False, sends_media=True)
STRICT = ResponsesConverter(return_token_id_information=False)
TRAINING = ResponsesConverter(return_token_id_information=True)
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
WEATHER_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}


def said(text, **fields):
    return OutputMessage(id="msg_1", content=[OutputText(text=text)], **fields)


def thought(*texts):
    return ReasoningItem(id="rs_1", summary=[Summary(text=text) for text in texts])


def called(call_id="call_1", **fields):
    return FunctionToolCall(call_id=call_id, name="get_weather", arguments='{"city": "Oslo"}', **fields)


def answered(call_id="call_1", output="cold"):
    return FunctionCallOutput(call_id=call_id, output=output)


def asked(text="Hello"):
    return EasyInputMessage(role="user", content=text)


def messages(*items, converter=CONVERTER):
    return converter.responses_to_chat_completion_create_params(ResponseCreateParams(input=list(items))).messages


CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}


def completion(finish_reason="stop", **message):
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}],
    }
