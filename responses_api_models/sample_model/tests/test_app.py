"""The server makes random but reproducible replies within the limits of a request."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import jsonschema_rs
import pytest
import yaml
from fastapi.testclient import TestClient

from nemo_gym import ServerClient
from responses_api_models.sample_model.app import ANSWERS, SampleModel, SampleModelConfig

ROLLOUT_HEADER = "x-nemo-gym-rollout"
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "get_weather", "parameters": WEATHER}
OTHER_TOOL = {"type": "function", "name": "wait", "parameters": None}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
USER = {"role": "user", "content": "Is it cold in Oslo?"}
IMPOSSIBLE = {"type": "object", "properties": {"day": {"enum": []}}, "required": ["day"]}


def client_of(**settings):
    config = SampleModelConfig(host="127.0.0.1", port=0, entrypoint="app.py", name="policy_model", **settings)
    server = SampleModel(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver())


@pytest.fixture
def client():
    with client_of() as client:
        yield client


def respond(client, rollout="0-0", **body):
    reply = client.post("/v1/responses", json={"input": [USER], **body}, headers={ROLLOUT_HEADER: rollout})
    assert reply.status_code == 200, reply.text
    return reply.json()


def chat(client, rollout="0-0", **body):
    reply = client.post("/v1/chat/completions", json={"messages": [USER], **body}, headers={ROLLOUT_HEADER: rollout})
    assert reply.status_code == 200, reply.text
    return reply.json()


def responses_of_rollouts(client, count=60, **body):
    return [respond(client, f"0-{repeat}", **body) for repeat in range(count)]


def calls_of(response):
    return [item for item in response["output"] if item["type"] == "function_call"]


def text_of(response):
    [item] = response["output"]
    return item["content"][0]["text"]


def played(client, rollout, turns=10):
    """Return a whole rollout against a tool with a constant output."""
    conversation = [USER]
    for _ in range(turns):
        response = respond(client, rollout, input=conversation, tools=[TOOL])
        conversation += response["output"]
        if not calls_of(response):
            break
        conversation += [
            {"type": "function_call_output", "call_id": call["call_id"], "output": "cold"}
            for call in calls_of(response)
        ]
    return conversation


def test_without_tools_answers_from_the_list(client):
    answers = {text_of(response) for response in responses_of_rollouts(client)}
    assert answers == set(ANSWERS)


def test_answers_are_configurable():
    with client_of(answers=["yes"]) as client:
        assert text_of(respond(client)) == "yes"


def test_arguments_of_every_call_are_valid(client):
    validator = jsonschema_rs.validator_for(WEATHER)
    calls = [call for response in responses_of_rollouts(client, tools=[TOOL]) for call in calls_of(response)]
    assert len(calls) > 40
    assert all(validator.is_valid(json.loads(call["arguments"])) for call in calls)


def test_tool_without_parameters_gets_empty_object(client):
    calls = calls_of(respond(client, tools=[OTHER_TOOL], tool_choice="required"))
    assert {call["arguments"] for call in calls} == {"{}"}


def test_model_sometimes_calls_and_sometimes_answers(client):
    kinds = [response["output"][0]["type"] for response in responses_of_rollouts(client, tools=[TOOL])]
    assert 30 < kinds.count("function_call") < 58
    assert kinds.count("message") == 60 - kinds.count("function_call")


@pytest.mark.parametrize(("probability", "kind"), [(0, "message"), (1, "function_call")])
def test_tool_call_probability_is_configurable(probability, kind):
    with client_of(tool_call_probability=probability) as client:
        responses = responses_of_rollouts(client, count=20, tools=[TOOL])
    assert {item["type"] for response in responses for item in response["output"]} == {kind}


def test_calls_per_turn_are_limited():
    with client_of(max_calls_per_turn=3, tool_call_probability=1) as client:
        counts = {len(calls_of(response)) for response in responses_of_rollouts(client, tools=[TOOL])}
    assert counts == {1, 2, 3}


@pytest.mark.parametrize(
    ("limit", "counts"),
    [({"parallel_tool_calls": False}, {1}), ({"max_tool_calls": 1}, {1}), ({"max_tool_calls": 0}, {0}), ({}, {1, 2})],
)
def test_call_limit_of_request_is_respected(client, limit, counts):
    responses = responses_of_rollouts(client, count=20, tools=[TOOL], tool_choice="required", **limit)
    assert {len(calls_of(response)) for response in responses} == counts


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("none", set()),
        ("required", {"get_weather", "wait"}),
        ({"type": "function", "name": "wait"}, {"wait"}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
            {"get_weather"},
        ),
    ],
)
def test_tool_choice_is_respected(client, choice, called):
    responses = responses_of_rollouts(client, count=20, tools=[TOOL, OTHER_TOOL], tool_choice=choice)
    assert {call["name"] for response in responses for call in calls_of(response)} == called
    assert all(bool(calls_of(response)) == bool(called) for response in responses)


@pytest.mark.parametrize("max_tool_turns", [0, 2])
def test_model_answers_after_max_tool_turns(max_tool_turns):
    with client_of(max_tool_turns=max_tool_turns, tool_call_probability=1) as client:
        conversation = played(client, "0-0")
    assert conversation[-1]["type"] == "message"
    assert sum(isinstance(item.get("content"), str) for item in conversation) == 1
    outputs_before = [
        item["type"] == "function_call" and conversation[index - 1].get("type") != "function_call"
        for index, item in enumerate(conversation)
        if "type" in item
    ]
    assert sum(outputs_before) == max_tool_turns


def test_repeated_rollout_is_identical(client):
    first = [json.dumps(played(client, f"3-{repeat}")) for repeat in range(10)]
    with client_of() as restarted:
        assert [json.dumps(played(restarted, f"3-{repeat}")) for repeat in range(10)] == first


def test_same_request_is_drawn_afresh_without_seed():
    with client_of(seed=None) as unseeded:
        assert len({json.dumps(played(unseeded, "0-0")) for _ in range(10)}) > 1


def test_repeats_tasks_and_seeds_differ(client):
    with client_of(seed=1) as reseeded:
        rollouts = [
            *(json.dumps(played(client, rollout)) for rollout in ("0-0", "0-1", "1-0", "0-0-a1")),
            json.dumps(played(reseeded, "0-0")),
        ]
    assert len(set(rollouts)) == len(rollouts)


def test_response_does_not_depend_on_time(client):
    assert respond(client) == respond(client)
    assert respond(client)["created_at"] == 0
    assert chat(client) == chat(client)
    assert chat(client)["created"] == 0


def test_ids_differ_between_turns():
    with client_of(tool_call_probability=1) as client:
        conversation = played(client, "0-0")
    ids = [item["call_id"] for item in conversation if item.get("type") == "function_call"]
    assert len(ids) >= 4
    assert len(set(ids)) == len(ids)


def test_response_echoes_request_and_counts_words(client):
    response = respond(client, model="some-model", tools=[TOOL], tool_choice="none", metadata={"a": "b"})
    assert response["model"] == "some-model"
    assert response["tools"] == [TOOL]
    assert response["metadata"] == {"a": "b"}
    words = len(text_of(response).split())
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5, words, 5 + words)


def test_text_input_is_accepted(client):
    assert text_of(respond(client, input="Is it cold in Oslo?")) in ANSWERS


def test_chat_completions_call_tools_with_valid_arguments(client):
    validator = jsonschema_rs.validator_for(WEATHER)
    for repeat in range(20):
        [choice] = chat(client, f"0-{repeat}", tools=[CHAT_TOOL], tool_choice="required")["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        assert all(
            validator.is_valid(json.loads(call["function"]["arguments"])) for call in choice["message"]["tool_calls"]
        )


def test_chat_completions_match_responses(client):
    response = respond(client, tools=[TOOL], tool_choice="required")
    [choice] = chat(client, tools=[CHAT_TOOL], tool_choice="required")["choices"]
    called = [(call["name"], call["arguments"]) for call in calls_of(response)]
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    assert [(function["name"], function["arguments"]) for function in functions] == called


def test_chat_completions_respect_tool_choice_and_turn_limit():
    named = {"type": "function", "function": {"name": "get_weather"}}
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    answered = {"role": "tool", "tool_call_id": "c", "content": "cold"}
    turn = [{"role": "assistant", "content": None, "tool_calls": [call]}, answered]
    with client_of(tool_call_probability=1, max_tool_turns=2) as client:
        [choice] = chat(client, tools=[CHAT_TOOL], tool_choice=named)["choices"]
        assert len(choice["message"]["tool_calls"]) == 1
        [early] = chat(client, tools=[CHAT_TOOL], messages=[USER, *turn])["choices"]
        [late] = chat(client, tools=[CHAT_TOOL], messages=[USER, *turn, *turn])["choices"]
    assert early["finish_reason"] == "tool_calls"
    assert (late["finish_reason"], late["message"]["content"] in ANSWERS) == ("stop", True)


def test_chat_completions_return_n_choices(client):
    choices = chat(client, n=8)["choices"]
    assert [choice["index"] for choice in choices] == list(range(8))
    assert len({choice["message"]["content"] for choice in choices}) > 1


TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def test_tokens_of_each_turn_continue_the_turn_before():
    with client_of(return_token_id_information=True, tool_call_probability=1) as client:
        items, known = [USER], []
        for turn in range(5):
            output = respond(client, input=items, instructions="Be brief.", tools=[TOOL])["output"]
            assert not any(name in item for item in output[:-1] for name in TOKENS)
            prompt, generated, log_probs = (output[-1][name] for name in TOKENS)
            assert prompt[: len(known)] == known
            assert len(generated) == len(log_probs) > 0
            assert all(-20 < each < 0 for each in log_probs)
            assert generated.count(256) == len(output)
            known = [*prompt, *generated]
            results = [{"type": "function_call_output", "call_id": call["call_id"], "output": f"Turn {turn}: 3°"}
                       for call in output if call["type"] == "function_call"]  # fmt: skip
            items += [*output, *results]
    assert b"Is it cold in Oslo?" in bytes(token for token in known if token < 256)


def test_tokens_need_the_setting_and_depend_on_the_seed(client):
    def log_probs(seed):
        with client_of(return_token_id_information=True, seed=seed, answers=["A"]) as other:
            return chat(other)["choices"][0]["message"]["generation_log_probs"]

    assert not any(name in respond(client)["output"][-1] for name in TOKENS)
    assert log_probs(1) == log_probs(1) != log_probs(2)


def test_tokens_of_chat_messages_continue_the_conversation():
    with client_of(return_token_id_information=True, tool_call_probability=1) as client:
        message = chat(client, tools=[CHAT_TOOL])["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "3°"} for call in message["tool_calls"]]
        sent = {name: value for name, value in message.items() if name not in TOKENS}
        after = chat(client, messages=[USER, sent, *results], tools=[CHAT_TOOL])["choices"][0]["message"]
    known = message["prompt_token_ids"] + message["generation_token_ids"]
    assert after["prompt_token_ids"][: len(known)] == known


def test_structured_answer_is_valid(client):
    schema = {"type": "object", "properties": {"letter": {"enum": ["A", "B"]}}, "required": ["letter"]}
    wanted = {"type": "json_schema", "name": "letter", "schema": schema}
    letters = {json.loads(text_of(each))["letter"] for each in responses_of_rollouts(client, text={"format": wanted})}
    assert letters == {"A", "B"}
    chat_format = {"type": "json_schema", "json_schema": {"name": "letter", "schema": schema}}
    [choice] = chat(client, response_format=chat_format)["choices"]
    assert json.loads(choice["message"]["content"])["letter"] in letters
    assert json.loads(text_of(respond(client, text={"format": {"type": "json_object"}})))["answer"] in ANSWERS


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [{**TOOL, "parameters": IMPOSSIBLE}]}, ["'get_weather'", "#/properties/day"]),
        ({"tools": [{**TOOL, "parameters": {"type": "string"}}]}, ["'get_weather'", "#/type"]),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "gone"}}, ["'gone'", "get_weather"]),
        ({"tools": [], "tool_choice": "required"}, ["required", "no function tool"]),
    ],
)
def test_impossible_request_is_rejected_with_reason(client, body, words):
    reply = client.post("/v1/responses", json={"input": "?", "tool_choice": "required", **body})
    assert reply.status_code == 422
    assert all(word in reply.json()["detail"] for word in words)


def test_config_defines_the_policy_model():
    config = yaml.safe_load((Path(__file__).parents[1] / "configs" / "sample_model.yaml").read_text("utf-8"))
    [(kind, implementations)] = config["policy_model"].items()
    [(folder, settings)] = implementations.items()
    assert (kind, folder) == ("responses_api_models", "sample_model")
    SampleModelConfig(host="127.0.0.1", port=0, name="policy_model", **settings)
