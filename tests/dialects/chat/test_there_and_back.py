"""Property tests of the round trip to Chat Completions."""

from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from nemo_gym.published.split_items import split_responses_input_output_items
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    HostedItem,
    OutputMessage,
    ReasoningItem,
)
from tests.dialects.chat.conversing import CONVERTER, answered, asked, called, messages, said, thought
from tests.each_case import each_case

CALLS = (
    "custom_tool_call", "web_search_call", "file_search_call", "computer_call", "code_interpreter_call",
    "image_generation_call", "local_shell_call", "mcp_call", "mcp_list_tools", "mcp_approval_request",
)  # fmt: skip
CHAT_MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
text = st.text(min_size=1, max_size=20).filter(lambda t: "think>" not in t)
name = st.from_regex(r"\A[a-z_]{1,8}\Z")


@st.composite
def turns(draw):
    """Draw the items of one chat message in their order, followed by an item of another role."""
    if draw(st.booleans()):
        return [EasyInputMessage(role=draw(st.sampled_from(["user", "system", "developer"])), content=draw(text))]
    items = [thought(*draw(st.lists(text.filter(str.strip), min_size=1, max_size=2)))] if draw(st.booleans()) else []
    items += [said(draw(text))] if draw(st.booleans()) else []
    calls = draw(st.lists(st.tuples(name, text, text), max_size=3, unique_by=lambda call: call[0]))
    items += [FunctionToolCall(call_id=i, name="f", arguments=arguments) for i, arguments, _ in calls]
    # A turn ends with another role's item, because adjacent assistant items become one message.
    return items + ([FunctionCallOutput(call_id=i, output=output) for i, _, output in calls] or [asked()])


def hosted(kind):
    return HostedItem(type=kind)


def assistant(content):
    return EasyInputMessage(role="assistant", content=content)


def essence(items):
    """Yield the contents of items without their ids."""
    for item in items:
        match item:
            case EasyInputMessage():
                yield item.role, item.content
            case OutputMessage():
                yield "said", item.text
            case FunctionToolCall():
                yield "called", item.call_id, item.name, item.arguments
            case FunctionCallOutput():
                yield "answered", item.call_id, item.output
            case ReasoningItem():
                yield "thought", *(part.text for part in item.summary)


@given(st.lists(turns(), max_size=6))
def test_conversation_survives_round_trip(conversation):
    items = [item for turn in conversation for item in turn]
    # It begins with a user's message, because leading instructions are joined.
    items = [asked(), *items]
    sent = messages(*items)
    CHAT_MESSAGES.validate_python(sent)
    back = CONVERTER.chat_completions_messages_to_responses_items(sent)
    assert list(essence(back)) == list(essence(items))


@each_case("first", [thought("t"), said("a"), called(), assistant("a"), *map(hosted, CALLS)])
def test_conversation_is_split_at_first_assistant_item(first):
    replies = [answered(), hosted("mcp_approval_response"), hosted("custom_tool_call_output")]
    given_items, done = [asked(), asked("Now"), *replies], [first, asked("more")]
    assert split_responses_input_output_items([*given_items, *done]) == (given_items, done)
    assert split_responses_input_output_items(given_items) == (given_items, [])
