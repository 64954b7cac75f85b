"""All model servers against the same odd replies: one row per reply, one column per server and route."""

import logging

import orjson
import pytest

from tests.each_case import each_case
from tests.model_servers.servers import (
    CHAT,
    COLUMNS,
    RESPONSES,
    USAGE,
    Outcome,
    chat,
    message,
    model_servers,
    response,
    said,
    written,
)


@pytest.fixture
async def servers():
    async with model_servers() as up:
        yield up


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sea"}'}}
ITEM = {"type": "function_call", "id": "f1", "call_id": "call_1", "name": "look", "arguments": '{"at":"sea"}'}
BLOCK = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "sea"}}
TEXT = {"type": "text", "text": "Hi"}
HI, LOOK = Outcome("Hi", tokens=7), (("look", '{"at":"sea"}'),)
UNKNOWN = Outcome("Hi")
CUT_OFF, FILTERED = Outcome(ending="max_output_tokens"), Outcome(ending="content_filter")


def fails(problem, ending="model_failed"):
    return Outcome(ending=ending, problem=problem)


def all_of(reply):
    return {"chat": reply, "responses": reply, "messages": reply}


def choices(*messages, indices=None):
    at = indices or range(len(messages))
    return chat(choices=[chat(each, choice={"index": i})["choices"][0] for i, each in zip(at, messages, strict=True)])


def usage(api, **counts):
    given = {**USAGE[api], **counts}
    return {"usage": {name: count for name, count in given.items() if count != "missing"}}


def aborted(reason):
    return {"chat": chat({"content": "It be"}, choice={"finish_reason": reason})}


CALLED = Outcome("Hi", LOOK, tokens=7)
JUST_CALLED = Outcome("", LOOK, tokens=7)
REPLIES = {
    # The usual reply, and those that differ in fields that are only bookkeeping.
    "usual": (HI, {"chat": chat(), "responses": response(), "messages": message()}),
    "no-head": (
        HI,
        {
            "chat": {name: chat()[name] for name in ("choices", "usage")},
            "responses": {name: response()[name] for name in ("output", "usage")},
            "messages": {name: message()[name] for name in ("content", "stop_reason", "usage")},
        },
    ),
    "null-head": (
        HI,
        {
            "chat": chat(id=None, model=None, created=None, object=None),
            "responses": response(id=None, model=None, created_at=None, tools=None, metadata={"a": 1}),
            "messages": message(id=None, model=None, type=None, role=None),
        },
    ),
    "date": (HI, {"chat": chat(created="2026-11-28T12:00:00Z"), "responses": response(created_at="2026-11-28")}),
    "milliseconds": (HI, {"chat": chat(created=1.7e12), "responses": response(created_at="soon")}),
    "null-parts": (
        HI,
        {
            "chat": chat({"annotations": None, "refusal": None, "tool_calls": None, "audio": None}),
            "responses": response(
                said(content=[{"type": "output_text", "text": "Hi", "annotations": None, "logprobs": None}])
            ),
            "messages": message({**TEXT, "citations": None}),
        },
    ),
    "plain-content": (
        HI,
        {
            "chat": chat({"content": [TEXT]}),
            "responses": response(said(content="Hi")),
            "messages": message(content="Hi"),
        },
    ),
    "bare-reasoning": (
        HI,
        {
            "responses": response({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "6"}]}, said()),
            "messages": message({"type": "thinking", "thinking": "6", "signature": None}, TEXT),
        },
    ),
    "unknown-item": (
        HI,
        {
            "responses": response({"type": "novel_call_of_2027", "id": "n1", "x": [1]}, said()),
            "messages": message({"type": "novel_block", "x": 1}, TEXT),
        },
    ),
    "null-details": (
        HI,
        {
            "chat": chat(usage={**USAGE["chat"], "prompt_tokens_details": None, "completion_tokens_details": None}),
            "responses": response(
                usage={**USAGE["responses"], "input_tokens_details": None, "output_tokens_details": None}
            ),
            "messages": message(
                usage={**USAGE["messages"], "cache_read_input_tokens": None, "output_tokens_details": None}
            ),
        },
    ),
    "null-arguments": (
        Outcome("", (("look", "{}"),), tokens=7),
        {
            "chat": chat({"content": None, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": None}}]}),
            "responses": response({**ITEM, "arguments": None}),
            "messages": message({**BLOCK, "input": None}),
        },
    ),
    "object-arguments": (
        JUST_CALLED,
        {
            "chat": chat(
                {"content": None, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {"at": "sea"}}}]}
            ),
            "responses": response({**ITEM, "arguments": {"at": "sea"}}),
        },
    ),
    "no-call-id": (
        JUST_CALLED,
        {
            "chat": chat({"content": None, "tool_calls": [{"function": CALL["function"]}]}),
            "responses": response({name: ITEM[name] for name in ("type", "name", "arguments")}),
        },
    ),
    "equal-ids": (
        Outcome("", LOOK * 2, tokens=7),
        {
            "chat": chat({"content": None, "tool_calls": [CALL, CALL]}),
            "responses": response(ITEM, ITEM),
        },
    ),
    # Parts of one answer in several places.
    "split": (CALLED, {"chat": choices({}, {"content": None, "tool_calls": [CALL]})}),
    "split-calls": (
        Outcome("", LOOK * 2, tokens=7),
        {"chat": choices(*[{"content": None, "tool_calls": [CALL]}] * 2)},
    ),
    "out-of-order": (HI, {"chat": choices({"content": "Other"}, {}, indices=[1, 0])}),
    "two-texts": (fails("2 choices with 2 texts"), {"chat": choices({}, {"content": "more"})}),
    "legacy-call": (JUST_CALLED, {"chat": chat({"content": None, "function_call": CALL["function"]})}),
    "custom-call": (
        fails("of type 'custom'"),
        {"chat": chat({"tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]})},
    ),
    # Token counts that the endpoint does not know.
    "no-usage": (UNKNOWN, {"chat": chat(usage={}), "responses": response(usage={}), "messages": message(usage={})}),
    "zero-usage": (
        UNKNOWN,
        {
            "chat": chat(**usage("chat", prompt_tokens=0, completion_tokens=0, total_tokens=0)),
            "responses": response(**usage("responses", input_tokens=0, output_tokens=0, total_tokens=0)),
            "messages": message(**usage("messages", input_tokens=0, output_tokens=0)),
        },
    ),
    "half-usage": (
        UNKNOWN,
        {
            "chat": chat(**usage("chat", completion_tokens=None)),
            "responses": response(**usage("responses", output_tokens=None)),
            "messages": message(**usage("messages", input_tokens="missing")),
        },
    ),
    "other-half": (
        UNKNOWN,
        {
            "chat": chat(**usage("chat", prompt_tokens="missing")),
            "responses": response(**usage("responses", input_tokens="missing")),
            "messages": message(**usage("messages", output_tokens=None)),
        },
    ),
    "odd-usage": (
        UNKNOWN,
        {"chat": chat(usage="many"), "responses": response(usage=[]), "messages": message(usage=7)},
    ),
    "float-usage": (
        HI,
        {
            "chat": chat(usage={"prompt_tokens": 3.0, "completion_tokens": 4.0}),
            "responses": response(usage={"input_tokens": 3.0, "output_tokens": 4.0}),
        },
    ),
    # Errors with status 200.
    "error-429": (
        fails("with an error: Too fast", "overloaded"),
        all_of({"error": {"message": "Too fast", "code": 429}}),
    ),
    "error-of-vllm": (
        fails("with an error: Bad things"),
        all_of({"object": "error", "message": "Bad things", "code": 400}),
    ),
    "error-of-anthropic": (
        fails("with an error: Overloaded", "overloaded"),
        all_of(
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ),
    ),
    "error-text": (fails("with an error: no!"), all_of({"error": "no!"})),
    "detail": (fails("with an error: no!"), all_of({"detail": "no!"})),
    "choice-error": (
        fails("with an error: Upstream", "overloaded"),
        {"chat": chat(choice={"error": {"message": "Upstream", "code": "503"}, "finish_reason": "error"})},
    ),
    "error-of-length": (
        CUT_OFF,
        all_of({"error": {"message": "No", "code": "context_length_exceeded"}}),
    ),
    "failed-of-length": (
        CUT_OFF,
        {"responses": response(status="failed", error={"code": "context_length_exceeded", "message": "Too much"})},
    ),
    "abort": (fails("finish_reason 'abort'", "overloaded"), aborted("abort")),
    "abort-object": (fails("finish_reason 'abort'", "overloaded"), aborted({"type": "abort"})),
    "cancelled": (fails("finish_reason 'cancelled'", "overloaded"), aborted("CANCELLED")),
    "no-finish": (HI, {"chat": chat(choice={"finish_reason": None}), "messages": message(stop_reason=None)}),
    # Nearly JSON.
    "surrogate": (
        Outcome("\ufffd", tokens=7),
        {
            "chat": orjson.dumps(chat()).replace(b"Hi", b"\\ud83d"),
            "responses": orjson.dumps(response()).replace(b"Hi", b"\\uDE00"),
            "messages": orjson.dumps(message()).replace(b"Hi", b"\\ud83d"),
        },
    ),
    "emoji": (Outcome("\U0001f600", tokens=7), {"chat": orjson.dumps(chat()).replace(b"Hi", b"\\ud83d\\ude00")}),
    "nan": (fails("line 1 column 7"), all_of(b'{"a": NaN}')),
    "bom": (fails("byte order mark"), all_of(b"\xef\xbb\xbf{}")),
    "bad-utf-8": (fails("not a JSON object"), all_of(b'{"a": "\xff"}')),
    "html": (fails("must end with /v1"), dict.fromkeys(("chat", "responses"), b"<html></html>")),
    "events": (fails("a stream of events"), dict.fromkeys(("chat", "responses"), b'data: {"a": 1}\n\n')),
    "list": (fails("not a JSON object"), all_of(b"[1]")),
}


@each_case("name", REPLIES)
async def test_odd_reply(name, servers):
    expected, replies = REPLIES[name]
    for column in COLUMNS:
        if column.api in replies:
            servers.endpoint.body = written(replies[column.api])
            outcome = await servers.ask(column)
            assert expected.problem in outcome.problem, (column, outcome)
            assert outcome._replace(problem="", ids=()) == expected._replace(problem=""), column
            assert len(set(outcome.ids)) == len(expected.calls), column


STATUSES = [
    (status, "model_failed") for status in (400, 401, 404, 405, 408, 409, 418, 425, 500, 501, 502, 504, 505, 521, 598)
] + [(status, "overloaded") for status in (429, 503, 529)]


@each_case(("status", "failure"), STATUSES)
async def test_error_status(status, failure, servers):
    servers.endpoint.status, servers.endpoint.body = status, b'{"error": {"message": "No."}}'
    for column in COLUMNS:
        assert (await servers.ask(column)).ending == failure, column


OVERFLOWS = [
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1050000) exceeds the maximum number of tokens allowed (1048576).",
    "Input is too long for requested model.",
    "Please reduce the length of the messages or completion.",
    "Range of input length should be [1, 30720]",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "This endpoint's maximum context length is 32768 tokens.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Your request exceeded model token limit: 8192",
    "too many tokens: size limit exceeded by 20 tokens",
    "Prompt exceeds max length",
    "request (3710 tokens) exceeds the available context size (1024 tokens), try increasing it",
    "Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input or enable "
    "--allow-auto-truncate.",
    "Request prompt exceeds the KV memory budget: input_len=5000.",
]
OTHERS = [
    "max_tokens is too large: 40000. This model supports at most 16384 completion tokens, whereas you provided 40000.",
    "max_completion_tokens is too large: 40000.This model supports at most 32768 completion tokens.",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000",
    "Invalid value for 'temperature': must be at most 2",
    "The tool's description is not valid.",
]


@each_case(("words", "expected"), [(each, CUT_OFF) for each in OVERFLOWS] + [(each, None) for each in OTHERS])
async def test_full_context_ends_the_conversation(words, expected, servers):
    servers.endpoint.status = 400
    servers.endpoint.body = orjson.dumps({"error": {"message": words, "type": "invalid_request_error"}})
    for column in COLUMNS:
        outcome = await servers.ask(column)
        assert (outcome if expected else outcome.ending) == (expected or "model_failed"), column


CODES = [
    ({"code": "context_length_exceeded"}, CUT_OFF),
    ({"type": "exceed_context_size_error", "code": 400}, CUT_OFF),
    ({"code": "content_filter"}, FILTERED),
    ({"innererror": {"code": "ResponsibleAIPolicyViolation"}}, FILTERED),
]


@each_case(("error", "expected"), CODES)
async def test_code_of_an_error_is_read_first(error, expected, servers):
    servers.endpoint.status = 400
    servers.endpoint.body = orjson.dumps({"error": {"message": "See the code.", **error}})
    for column in COLUMNS:
        assert await servers.ask(column) == expected, column


ODD_VALUES = [None, "no", 7, -1.5, True, [], {}, [None], [[1]], {"a": 1}, ["x"], [{}], [{"type": 3}]]
GOOD = {
    "chat": chat({"content": "Hi", "tool_calls": [CALL], "reasoning_content": "So"}),
    "responses": response(
        said(), ITEM, {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "6"}]}
    ),
    "messages": message(TEXT, BLOCK, {"type": "thinking", "thinking": "6", "signature": "s"}),
}


def with_odd_values(value):
    """Yield copies of a JSON value, each with one part replaced by a value of another type."""
    yield from ODD_VALUES
    if isinstance(value, dict):
        for key, each in value.items():
            yield from ({**value, key: odd} for odd in with_odd_values(each))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from ([*value[:at], odd, *value[at + 1 :]] for odd in with_odd_values(each))


@pytest.mark.slow
@each_case("column", COLUMNS)
async def test_any_reply_is_an_answer_or_a_described_failure(column, servers):
    for reply in with_odd_values(GOOD[column.api]):
        servers.endpoint.body = written(reply)
        outcome = await servers.ask(column)
        known = ("completed", "max_output_tokens", "content_filter", "model_failed", "overloaded")
        assert outcome.ending in known, (reply, outcome)
        assert not {"raised", "pydantic"} & set(outcome.problem.split()), (reply, outcome)


async def test_missing_finish_reason_is_logged_once(servers, caplog):
    caplog.set_level(logging.WARNING)
    servers.endpoint.body = written(chat(choice={"finish_reason": None}))
    for _ in range(2):
        await servers.ask(COLUMNS[0])
    assert [each.getMessage() for each in caplog.records if "finish_reason" in each.getMessage()] == [
        f"{servers.endpoint.url}: an answer has no finish_reason. Such answers count as complete: check that they are "
        "not cut off."
    ]


async def test_equal_ids_of_two_turns_become_unique(servers):
    replies = {"chat": chat({"tool_calls": [CALL]}), "responses": response(ITEM), "messages": message(BLOCK)}
    earlier = {
        RESPONSES: {
            "input": [
                {"role": "user", "content": "Hi"},
                {name: ITEM[name] for name in ("type", "call_id", "name", "arguments")},
                {"type": "function_call_output", "call_id": "call_1", "output": "wet"},
            ]
        },
        CHAT: {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "wet"},
            ]
        },
    }
    for column in COLUMNS:
        servers.endpoint.body = written(replies[column.api])
        outcome = await servers.ask(column, **earlier[column.route])
        assert [each == "call_1" for each in outcome.ids] == [False], column


BAD_ARGUMENTS = ['{"at": "sea', "sea", '["sea"]', "", "{'at': 'sea'}", "7"]


@each_case("arguments", BAD_ARGUMENTS)
async def test_arguments_are_sent_in_a_form_that_can_be_parsed(arguments, servers):
    call = {**ITEM, "arguments": arguments}
    asked = {
        RESPONSES: {
            "input": [
                {"role": "user", "content": "Hi"},
                {name: call[name] for name in ("type", "call_id", "name", "arguments")},
                {"type": "function_call_output", "call_id": "call_1", "output": "wet"},
            ]
        },
        CHAT: {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "look", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "wet"},
            ]
        },
    }
    replies = {"chat": chat(), "responses": response(), "messages": message()}
    for column in COLUMNS:
        servers.endpoint.body = written(replies[column.api])
        servers.endpoint.asked.clear()
        assert (await servers.ask(column, **asked[column.route])).text == "Hi", column
        (sent,) = servers.endpoint.asked
        if column.api == "chat":
            (found,) = [each["function"]["arguments"] for each in sent["messages"][1]["tool_calls"]]
        elif column.api == "responses":
            found = sent["input"][1]["arguments"]
        else:
            found = orjson.dumps(sent["messages"][1]["content"][0]["input"])
        assert isinstance(orjson.loads(found), dict), column


async def test_state_of_a_provider_is_sent_back(servers):
    signature = {"google": {"thought_signature": "c2ln"}}
    details = [{"type": "reasoning.encrypted", "data": "abc", "id": "r1", "format": "x"}]
    blocks = [{"type": "thinking", "thinking": "Rain?", "signature": "c2ln"}]
    states = {"reasoning_details": details, "thinking_blocks": blocks}
    first = {"content": None, "tool_calls": [{**CALL, "extra_content": signature}], **states}
    for column in COLUMNS:
        if (column.route, column.api) != (RESPONSES, "chat"):
            continue
        servers.endpoint.asked.clear()
        servers.endpoint.body = written(chat(first))
        url = servers.urls[column.name] + RESPONSES
        answer = (await servers.client.post(url, json={"input": "Hi"})).json()
        output = {"type": "function_call_output", "call_id": "call_1", "output": "wet"}
        items = [{"role": "user", "content": "Hi"}, *answer["output"], output]
        again = await servers.client.post(url, json={"input": items})
        assert again.status_code == 200, again.text
        sent = servers.endpoint.asked[1]["messages"][1]
        assert sent["tool_calls"][0]["extra_content"] == signature, column
        assert {name: sent[name] for name in states} == states, column


@each_case("reply", ["abort", "CANCELLED"])
async def test_broken_off_answer_is_requested_again(reply):
    async with model_servers(request_tries=2) as servers:
        for column in COLUMNS:
            if column.api == "chat":
                servers.endpoint.turns = [written(aborted(reply)["chat"])]
                servers.endpoint.body = written(chat())
                assert await servers.ask(column) == HI, column


UNSENDABLE = [
    {"previous_response_id": "resp_1"}, {"truncation": "auto"}, {"max_tool_calls": 3}, {"background": True},
    {"conversation": "conv_1"}, {"prompt": {"id": "p"}},
]  # fmt: skip


@each_case("asked", UNSENDABLE)
async def test_field_without_an_equivalent_is_named(asked, servers):
    for column in COLUMNS:
        if column.route == RESPONSES and column.api == "chat":
            outcome = await servers.ask(column, **asked)
            assert (outcome.ending, servers.endpoint.asked) == ("model_failed", []), column
            assert f"the request sets {next(iter(asked))}," in outcome.problem, column


async def test_fields_of_responses_are_sent_as_chat_fields(servers):
    servers.endpoint.body = written(chat())
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}
    for column in COLUMNS:
        if column.route == RESPONSES and column.api == "chat":
            servers.endpoint.asked.clear()
            asked = {"tool_choice": choice, "prompt_cache_key": "k", "truncation": "disabled", "background": False}
            assert await servers.ask(column, **asked) == HI, column
            (sent,) = servers.endpoint.asked
            allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}
            assert sent["tool_choice"] == {"type": "allowed_tools", "allowed_tools": allowed}
            assert sent["prompt_cache_key"] == "k"


async def test_null_keywords_of_a_tool_are_not_sent(servers):
    given = {"type": "object", "properties": {"at": {"type": "string", "enum": None, "default": None}, "b": None}}
    sendable = {"type": "object", "properties": {"at": {"type": "string", "default": None}}}
    replies = {"chat": chat(), "responses": response(), "messages": message()}
    for column in COLUMNS:
        function = {"name": "look", "parameters": given}
        tool = {"type": "function", **(function if column.route == RESPONSES else {"function": function})}
        servers.endpoint.body = written(replies[column.api])
        servers.endpoint.asked.clear()
        assert await servers.ask(column, tools=[tool]) == HI, column
        (sent,) = servers.endpoint.asked[0]["tools"]
        found = sent.get("function", sent)
        assert found.get("parameters", found.get("input_schema")) == sendable, column
