"""Gemini's API for programs: the request that the model gets, and the answer that the program gets."""

import json

import pytest

from nemo_gym import BaseVerifyRequest, DataError, SimpleResourcesServer
from nemo_gym.testing import FakeModel, call, make_server, run
from responses_api_agents.harness_agent.app import HarnessAgent
from responses_api_agents.harness_agent.gemini import translated

PATH = "/v1beta/models/policy:generateContent"
STREAM = PATH.replace("generate", "streamGenerate")
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}


def said(text):
    return {**MESSAGE, "content": [{"type": "output_text", "text": text, "annotations": []}]}


def called(name, arguments, call_id="call_1"):
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments}


def asked(*contents, path=PATH, **fields):
    """Return the request of the Responses API for a request of Gemini's API."""
    return json.loads(translated(path, "", json.dumps({"contents": contents, **fields}).encode()).request)


def answered(*output, path=PATH, query="", **fields):
    """Return the body and the media type of the answer with these items."""
    response = {"id": "resp_1", "created_at": 0, "model": "policy", "object": "response", "output": output,
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}  # fmt: skip
    body = json.dumps({"contents": []}).encode()
    return translated(path, query, body).answer(200, json.dumps(response).encode())


def candidate(*output, **fields):
    return json.loads(answered(*output, **fields)[0])["candidates"][0]


def test_request_has_settings_and_tools():
    schema = {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}, "required": ["type"]}
    request = asked(
        {"role": "user", "parts": [{"text": "Go."}]},
        systemInstruction={"parts": [{"text": "Be brief."}]},
        tools=[{"functionDeclarations": [{"name": "go", "description": "Go.", "parameters": schema}]},
               {"functionDeclarations": [{"name": "stop"}]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["go"]}},
        generationConfig={"temperature": 0.5, "topP": 0.9, "topK": 64, "maxOutputTokens": 7,
                          "responseMimeType": "application/json", "thinkingConfig": {"includeThoughts": True}},
    )  # fmt: skip
    parameters = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}
    nothing = {"type": "object", "properties": {}}
    assert request == {
        "model": "policy",
        "input": [{"role": "user", "content": "Go."}],
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "tools": [
            {"type": "function", "name": "go", "description": "Go.", "parameters": parameters, "strict": False},
            {"type": "function", "name": "stop", "parameters": nothing, "strict": False},
        ],
        "tool_choice": {"type": "function", "name": "go"},
        "text": {"format": {"type": "json_object"}},
    }


def test_results_belong_to_calls_with_and_without_ids():
    def call_of(at, **more):
        return {"functionCall": {"name": "look", "args": {"at": at}, **more}}

    def result_of(output, **more):
        return {"functionResponse": {"name": "look", "response": {"output": output}, **more}}

    request = asked(
        {"role": "model", "parts": [call_of(1), call_of(2), call_of(3, id="own")]},
        {"role": "user", "parts": [result_of("one"), result_of("three", id="own"), result_of({"b": 2})]},
    )
    results = {each["call_id"]: each["output"] for each in request["input"] if "output" in each}
    calls = {each["call_id"]: each["arguments"] for each in request["input"] if "arguments" in each}
    assert calls == {"call_1": '{"at": 1}', "call_2": '{"at": 2}', "own": '{"at": 3}'}
    assert results == {"call_1": "one", "call_2": '{"b": 2}', "own": "three"}


def test_media_are_parts_of_messages_and_results():
    result = {"name": "draw", "id": "call_1", "response": {"output": "drawn"}, "parts": [PICTURE]}
    texts = [{"text": "Look:"}, PICTURE, {"text": ""}, {"functionResponse": result}]
    message, output = asked({"role": "user", "parts": texts})["input"]
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    assert message == {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, picture]}
    assert output["output"] == [{"type": "input_text", "text": "drawn"}, picture]


def test_answer_has_parts_usage_and_end():
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 14}  # fmt: skip
    body, media_type = answered(said("I go."), called("go", '{"to": "Porto"}'), usage=usage)
    assert media_type == "application/json"
    assert json.loads(body) == {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "I go."},
                        {"functionCall": {"id": "call_1", "name": "go", "args": {"to": "Porto"}}},
                    ],
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "modelVersion": "policy",
        "responseId": "resp_1",
        "usageMetadata": {
            "promptTokenCount": 9,
            "cachedContentTokenCount": 4,
            "candidatesTokenCount": 3,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 14,
        },
    }


@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "MAX_TOKENS"), ("content_filter", "SAFETY")])
def test_incomplete_answer_has_its_reason(reason, finish):
    given = candidate(said("I"), status="incomplete", incomplete_details={"reason": reason})
    assert given["finishReason"] == finish


def test_stream_is_one_event_or_a_list():
    event, media_type = answered(said("Yes"), path=STREAM, query="alt=sse")
    assert media_type == "text/event-stream"
    whole = json.loads(event.removeprefix(b"data: "))
    assert json.loads(answered(said("Yes"), path=STREAM)[0]) == [whole]


@pytest.mark.parametrize("then", [[said("Porto")], [called("go", "{}")], [called("go", "{"), said("Porto")], []])
def test_reasoning_returns_without_the_thought(then):
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Where to?"}]}
    content = candidate(reasoning, *then)["content"]
    thought, *rest = content["parts"]
    assert thought == {"text": "Where to?", "thought": True}
    for parts in (content["parts"], rest):
        first, *others = asked({"role": "model", "parts": parts})["input"]
        assert first == reasoning
        assert [each.get("arguments", each.get("content")) for each in others] == [
            each.get("arguments") or each["content"][0]["text"] for each in then
        ]


@pytest.mark.parametrize("signature", ["skip_thought_signature_validator", "c2ln", "ä", "bmVtb19neW06ew=="])
def test_signatures_of_others_are_ignored(signature):
    part = {"text": "Porto", "thoughtSignature": signature}
    assert asked({"role": "model", "parts": [part]})["input"] == [{"role": "assistant", "content": "Porto"}]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "contents: Field required"),
        ({"contents": [{"parts": [{"text": 1}]}]}, r"contents.0.parts.0.text: Input should be a valid string"),
        ({"contents": [{"parts": [{"executableCode": {}}]}]}, "a part has executableCode"),
        ({"contents": [{"parts": [{}]}]}, "a part has nothing in it"),
        ({"contents": [{"parts": [{"functionResponse": {"name": "go"}}]}]}, "the functionResponse of go lacks an id"),
        ({"contents": [], "tools": [{"googleSearch": {}}]}, "tool googleSearch: "),
        ({"contents": [], "generationConfig": {"candidateCount": 2}}, "candidateCount is 2"),
    ],
)
def test_requests_without_an_equivalent_are_rejected(body, problem):
    with pytest.raises(DataError, match=problem):
        translated(PATH, "", json.dumps(body).encode())


@pytest.mark.parametrize(
    "path", ["/v1beta/models/policy:countTokens", "/v1beta/models", "/v1/models/a/b:generateContent"]
)
def test_other_routes_are_not_translated(path):
    assert translated(path, "", b"") is None


class EchoServer(SimpleResourcesServer):
    """Grades whether the model's last word is Porto."""

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(body.response.last_text == "Porto")


PROGRAM = """
import json, os, urllib.error, urllib.request
def ask(*contents, **fields):
    url = os.environ["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/policy:generateContent"
    body = json.dumps({"contents": contents, **fields}).encode()
    request = urllib.request.Request(url, body, {"x-goog-api-key": os.environ["GEMINI_API_KEY"]})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        return json.load(error)
task = {"role": "user", "parts": [{"text": open("task.md").read()}]}
first = ask(task, tools=[{"functionDeclarations": [{"name": "look"}]}])["candidates"][0]["content"]
result = {"functionResponse": {"id": first["parts"][0]["functionCall"]["id"], "name": "look", "response": {}}}
ask(task, first, {"role": "user", "parts": [result]})
json.dump([ask(task), ask(3)], open("errors.json", "w"))
"""


@pytest.mark.needs_bubblewrap
@pytest.mark.slow
async def test_program_calls_the_model_with_geminis_api():
    model = FakeModel([call("look"), "Porto"])
    servers = [make_server(EchoServer, name="environment")]
    about = {"resources_server": {"type": "resources_servers", "name": "environment"}, "files": {}, "max_steps": 2}
    about |= {"model_server": {"type": "responses_api_models", "name": "policy"}}
    agent = make_server(HarnessAgent, model=model, servers=servers, command=["python3", "-c", PROGRAM], **about)
    graded = await run(agent, responses_create_params={"input": "Where to?"})
    assert graded.reward == 1.0
    kinds = ["function_call", "function_call_output", "message"]
    assert [each["type"] for each in graded.response.model_dump()["output"]] == kinds
    limit, wrong = json.loads(graded.workspace["files"]["errors.json"])
    assert limit["error"] == {"code": 429, "status": "RESOURCE_EXHAUSTED",
                              "message": "the limit of 2 calls of the model is reached"}  # fmt: skip
    assert wrong["error"]["message"].startswith("contents.0: ")
