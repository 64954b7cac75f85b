"""What a real vLLM answers through each kind of model server, in each dialect, streamed and not."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.engines.conftest import CONTEXT, LIMIT_S, TOOLS
from tests.waiting import until

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_S)]

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
SERVERS = ["policy_model", "plain_model", "native_model", "prompt_model"]
WITH_TOOLS = ["policy_model", "plain_model", "native_model"]
"""`prompt_model` parses calls from texts, so it cannot force one."""
LENGTH = 12
SCHEMA = TOOLS["turn"]["parameters"]


def ask(engine, server, path, *, stream=False, **body):
    """Return a model server's answer. Of a stream, return the last response or the joined chunks."""
    said = [{"role": "user", "content": "Find the door."}]
    asked = {"input" if path == RESPONSES else "messages": said, "seed": 1, **body}
    if path == RESPONSES:
        # The Responses API has no seed.
        asked["metadata"] = {"extra_body": json.dumps({"seed": asked.pop("seed")}), **asked.get("metadata", {})}
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    reply = httpx.post(
        engine.url_of(server) + path, json={limit: LENGTH, "stream": stream, **asked}, timeout=LIMIT_S, verify=False
    )
    assert reply.status_code == 200, reply.text
    return (last_of if stream else dict)(reply.text if stream else reply.json())


def last_of(text):
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    if "response" in events[-1]:
        return events[-1]["response"]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    message = {"content": "".join(each.get("content") or "" for each in deltas)}
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    return {"choices": [{"message": message, "finish_reason": reasons[-1]}]}


def text_of(answer):
    if "choices" in answer:
        return answer["choices"][0]["message"]["content"] or ""
    parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


def was_cut(answer):
    if "choices" in answer:
        return answer["choices"][0]["finish_reason"] == "length"
    return answer["status"] == "incomplete"


def calls_of(answer):
    """Return the names of an answer's calls. The engine enforces the schemas of their arguments."""
    if "choices" in answer:
        calls = [call["function"] for call in answer["choices"][0]["message"].get("tool_calls") or ()]
    else:
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
    for call in calls:
        (key,) = TOOLS[call["name"]]["parameters"]["required"]
        assert json.loads(call["arguments"])[key] in TOOLS[call["name"]]["parameters"]["properties"][key]["enum"]
    return [call["name"] for call in calls]


def tools_in(path):
    if path == RESPONSES:
        return list(TOOLS.values())
    return [
        {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
        for tool in TOOLS.values()
    ]


@pytest.mark.parametrize("path", [RESPONSES, CHAT])
@pytest.mark.parametrize("server", SERVERS)
def test_same_seed_gives_the_same_answer_streamed_or_not(engine, server, path):
    for sampling in ({"temperature": 1.0}, {"temperature": 0.0}):
        answers = [ask(engine, server, path, stream=stream, **sampling) for stream in (False, True, False)]
        assert [was_cut(answer) for answer in answers] == [True] * 3
        assert text_of(answers[0]) == text_of(answers[1]) == text_of(answers[2])
        used = answers[0]["usage"]
        assert used["output_tokens" if path == RESPONSES else "completion_tokens"] == LENGTH


@pytest.mark.parametrize("path", [RESPONSES, CHAT])
@pytest.mark.parametrize("server", WITH_TOOLS)
def test_tool_choice_is_kept(engine, server, path):
    turn = {"name": "turn"} if path == RESPONSES else {"function": {"name": "turn"}}
    common = {"tools": tools_in(path), "max_output_tokens" if path == RESPONSES else "max_tokens": 600}
    for seed in range(2):
        forced = calls_of(ask(engine, server, path, tool_choice="required", seed=seed, **common))
        assert forced
        single = {"tool_choice": "required", "parallel_tool_calls": False}
        assert len(calls_of(ask(engine, server, path, seed=seed, **single, **common))) == 1
        named = calls_of(ask(engine, server, path, tool_choice={"type": "function", **turn}, seed=seed, **common))
        assert set(named) == {"turn"}
    common |= {"max_output_tokens" if path == RESPONSES else "max_tokens": LENGTH}
    assert calls_of(ask(engine, server, path, tool_choice="none", **common)) == []


@pytest.mark.parametrize("path", [RESPONSES, CHAT])
@pytest.mark.parametrize("server", WITH_TOOLS)
def test_answers_follow_a_schema(engine, server, path):
    schema = {"name": "side", "schema": SCHEMA, "strict": True}
    wanted = (
        {"text": {"format": {"type": "json_schema", **schema}}, "max_output_tokens": 200}
        if path == RESPONSES
        else {"response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 200}
    )
    assert json.loads(text_of(ask(engine, server, path, **wanted)))["side"] in ("left", "right")


@pytest.mark.parametrize("server", ["policy_model", "plain_model", "native_model"])
def test_reasoning_is_an_item(engine, server):
    thinks = {"metadata": {"chat_template_kwargs": '{"thinking": true}'}}
    answer = ask(engine, server, RESPONSES, **thinks)
    # The model does not end its reasoning, so there is no answer after it.
    assert [item["type"] for item in answer["output"] if item["type"] != "message"] == ["reasoning"]
    assert (text_of(answer), was_cut(answer)) == ("", True)


@pytest.mark.parametrize("server", SERVERS)
def test_stop_is_kept(engine, server):
    # One of these letters ends an answer, if the model ever writes it.
    letters = list("aeio")
    body = {"metadata": {"extra_body": json.dumps({"stop": letters})}, "max_output_tokens": 60}
    assert not set(letters) & set(text_of(ask(engine, server, RESPONSES, **body)))


def test_log_probabilities_are_those_of_the_answer(engine):
    for server in ("policy_model", "plain_model"):
        answer = ask(engine, server, CHAT, logprobs=True, top_logprobs=2)
        given = answer["choices"][0]["logprobs"]["content"]
        assert [len(each["top_logprobs"]) for each in given] == [2] * LENGTH


@pytest.mark.parametrize("server", ["policy_model", "prompt_model"])
def test_token_ids_are_those_of_the_engine(engine, server):
    item = ask(engine, server, RESPONSES)["output"][-1]
    messages = [{"role": "user", "content": "Find the door."}]
    assert item["prompt_token_ids"] == engine.ask_engine("/tokenize", {"messages": messages})["tokens"]
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) == LENGTH
    assert tuple(item["prompt_token_ids"]) in engine.received()


def test_aborted_answer_goes_on_from_its_tokens(engine):
    length = CONTEXT - 300
    asked = {"max_output_tokens": length, "metadata": {"extra_body": '{"ignore_eos": true}'}}
    with ThreadPoolExecutor() as pool:
        running = pool.submit(ask, engine, "prompt_model", RESPONSES, **asked)
        for _ in range(2):
            until(lambda: engine.metric("num_requests_running") >= 1, within_s=LIMIT_S)
            sampled = engine.metric("generation_tokens_total")
            until(lambda sampled=sampled: engine.metric("generation_tokens_total") > sampled, within_s=LIMIT_S)
            assert engine.ask_engine("/abort_requests", {})["aborted"] == 1
        answer = running.result()
    # What the model writes may also have reasoning in it.
    item = answer["output"][-1]
    prompt, tokens, spans = item["prompt_token_ids"], item["generation_token_ids"], item["sampling_spans"]
    assert len(tokens) == len(item["generation_log_probs"]) == sum(span["tokens"] for span in spans) == length
    assert answer["usage"]["output_tokens"] == length
    assert len(spans) == 3
    received = engine.received()
    for end in (0, spans[0]["tokens"], spans[0]["tokens"] + spans[1]["tokens"]):
        assert (*prompt, *tokens[:end]) in received
    times = [span[name] for span in spans for name in ("began_at", "ended_at")]
    assert times == sorted(times)


@pytest.mark.parametrize("server", SERVERS)
def test_prompt_that_fills_the_context_is_an_incomplete_answer(engine, server):
    said = [{"role": "user", "content": "door " * CONTEXT}]
    answer = ask(engine, server, RESPONSES, input=said)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert text_of(answer) == ""
