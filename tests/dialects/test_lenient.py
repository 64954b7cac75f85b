"""Tests of streaming Responses requests as other clients send them."""

from nemo_gym.dialects.lenient import QualifiedName, plain_request, with_client_names
from nemo_gym.schemas.items import EasyInputMessage, FunctionToolCall
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.testing import call, reply
from tests.each_case import each_case

KNOWN = ResponseCreateParams.model_fields
ASKED = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "name": "get_time", "parameters": {"type": "object"}}


def namespace(*tools):
    return {"type": "namespace", "name": "crm", "description": "Customers.", "tools": list(tools)}


def offer(*tools):
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def fields(*items, **others):
    return plain_request({"input": list(items), **others}, KNOWN).fields


def developer(*texts, role="developer", **others):
    return {"role": role, "content": [{"type": "input_text", "text": text} for text in texts], **others}


def test_only_known_fields_are_kept():
    body = {"model": "m", "input": "Hello", "client_metadata": {}, "temperature": None, "stream": True}
    body |= {"stream_options": {"include_obfuscation": False}}
    assert plain_request(body, KNOWN) == ({"model": "m", "input": "Hello"}, {})


def test_namespace_functions_are_flattened():
    listing = {"type": "function", "name": "list_orders", "strict": False, "defer_loading": True}
    plain = plain_request({"input": "Hello", "tools": [TOOL, namespace(listing)]}, KNOWN)
    assert plain.fields["tools"] == [TOOL, {"type": "function", "name": "crm__list_orders", "strict": False}]
    assert plain.names == {"crm__list_orders": QualifiedName("crm", "list_orders")}


def test_tools_offered_later_are_offered_from_start():
    plain = plain_request({"input": [ASKED, offer(namespace(TOOL)), offer(TOOL)], "tools": [{"type": "x"}]}, KNOWN)
    assert plain.fields == {"input": [ASKED], "tools": [{"type": "x"}, {**TOOL, "name": "crm__get_time"}, TOOL]}
    assert set(plain.names) == {"crm__get_time"}


@each_case(
    ("before", "instructions"),
    [
        ([developer("Be brief.")], "Be brief."),
        ([developer("Be", "brief."), {"role": "system", "content": "No jokes."}], "Be\n\nbrief.\n\nNo jokes."),
        ([offer(TOOL), developer("Be brief.", type="message", id="msg_1")], "Be brief."),
        ([developer("")], None),
        ([], None),
    ],
)
def test_leading_system_and_developer_messages_become_instructions(before, instructions):
    read = fields(*before, ASKED, developer("By the way."))
    assert read.get("instructions") == instructions
    assert read["input"] == [ASKED, developer("By the way.")]


def test_existing_instructions_come_first():
    assert fields(developer("Be brief."), instructions="You are kind.")["instructions"] == "You are kind.\n\nBe brief."


def test_image_in_instructions_stays_in_input():
    picture = {"role": "developer", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]}
    assert fields(picture, ASKED) == {"input": [picture, ASKED]}


def test_earlier_calls_use_flattened_names():
    earlier = {"type": "function_call", "call_id": "c", "namespace": "crm", "name": "list_orders", "arguments": "{}"}
    (item,) = fields(earlier)["input"]
    assert item == {"type": "function_call", "call_id": "c", "name": "crm__list_orders", "arguments": "{}"}


def test_reasoning_without_an_id_is_given_one():
    first, second, third = fields(*[{"type": "reasoning", "summary": []}] * 2, {"type": "reasoning", "id": "rs_1"})[
        "input"
    ]
    assert first["id"].startswith("rs_")
    assert first["id"] != second["id"]
    assert third["id"] == "rs_1"


def test_only_calls_of_flattened_functions_are_renamed():
    answered = reply(call("crm__list_orders"), call("get_time"), "Done.")
    listing, time, done = with_client_names(
        answered, {"crm__list_orders": QualifiedName("crm", "list_orders")}
    ).model_dump()["output"]
    assert (listing["namespace"], listing["name"]) == ("crm", "list_orders")
    assert (time["name"], done["type"]) == ("get_time", "message")
    assert "namespace" not in time
    assert answered.output[0].name == "crm__list_orders"


def test_lenient_result_is_a_valid_request():
    read = fields(developer("Be brief."), ASKED, {"type": "reasoning", "summary": []}, offer(namespace(TOOL)))
    params = ResponseCreateParams.model_validate(read)
    assert isinstance(params.input[0], EasyInputMessage)
    assert not any(isinstance(item, FunctionToolCall) for item in params.input)


@each_case(
    "body",
    [
        {"input": 3},
        {"input": [3, None, [], {"type": []}]},
        {"input": [{"role": ["developer"]}]},
        {"input": [{"role": "developer", "content": [3]}]},
        {"input": [{"role": "developer", "content": [{"text": 3}]}, {"role": "developer"}]},
        {"input": [{"type": "additional_tools", "tools": 3}, {"type": "function_call", "namespace": 3, "name": "x"}]},
        {"input": "Hello", "tools": 3},
        {"input": "Hello", "tools": [3, {"type": "namespace"}, namespace({"type": "function"}), namespace(3)]},
    ],
)
def test_malformed_content_is_left_to_strict_validation(body):
    assert plain_request(body, KNOWN) == (body, {})


def test_malformed_fields_are_not_extended():
    body = {"input": [developer("Be brief."), offer(TOOL), ASKED], "instructions": 3, "tools": 3}
    assert plain_request(body, KNOWN).fields == {"input": [ASKED], "instructions": 3, "tools": 3}
