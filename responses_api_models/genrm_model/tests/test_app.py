"""The server for generative reward models over real HTTP, in front of an endpoint that behaves like vLLM."""

import json
import re
from pathlib import Path

import httpx
import pytest

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.genrm_model.app import GenRMModel, GenRMModelConfig
from responses_api_models.genrm_model.embedded import CLEARLY, merits_of

QUESTION = {"role": "user", "content": "Name a fruit."}
ANSWERS = [{"role": "response_1", "content": "A pear."}, {"role": "response_2", "content": "A stone."}]
PRINCIPLE = {"role": "principle", "content": "The answer must be true."}
COMPARE = [QUESTION, *ANSWERS]
VERDICT = {"score_1": 4, "score_2": 2, "ranking": 2}
ENDPOINT = Path(__file__).with_name("vllm_endpoint.py")
RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"


@pytest.fixture(scope="module")
def vllm(run_endpoint):
    with run_endpoint(ENDPOINT) as url:
        yield url


async def ask(url, path, messages, **fields):
    key = "input" if path == RESPONSES else "messages"
    async with httpx.AsyncClient(base_url=url, verify=False) as client:
        return await client.post(path, json={key: messages, **fields})


async def judged(vllm, messages, model="judge", path=RESPONSES, **settings):
    """Return a fresh server's reply, and the bodies that reached the endpoint."""
    settings = {"base_url": f"{vllm}/v1", "api_key": "none", "model": model, **settings}
    async with on_a_port(make_server(GenRMModel, **settings)) as url:
        reply = await ask(url, path, messages)
    async with httpx.AsyncClient(verify=False) as client:
        return reply, (await client.get(f"{vllm}/seen")).json()


def text_of(response):
    (message,) = [item for item in response["output"] if item["type"] == "message"]
    return message["content"][0]["text"]


@pytest.mark.parametrize("path", [RESPONSES, CHAT])
async def test_judged_roles_reach_the_template_unchanged(vllm, path):
    system = {"role": "system", "content": "Be strict."}
    earlier = [
        system,
        QUESTION,
        {"role": "assistant", "content": "An apple."},
        {"role": "user", "content": "One more"},
    ]
    messages = [*earlier, *ANSWERS, PRINCIPLE]
    reply, bodies = await judged(vllm, messages, path=path)
    assert reply.status_code == 200, reply.text
    assert bodies == [{"model": "judge", "messages": messages}]


async def test_reply_is_translated_to_responses(vllm):
    response = (await judged(vllm, COMPARE))[0].json()
    assert json.loads(text_of(response)) == VERDICT
    assert (response["status"], response["usage"]["output_tokens"]) == ("completed", 7)


async def test_reasoning_is_a_separate_item(vllm):
    response = (await judged(vllm, COMPARE, "reasoning"))[0].json()
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert json.loads(text_of(response)) == VERDICT


async def test_typed_parts_become_chat_parts(vllm):
    parts = [{"type": "input_text", "text": "A pear."}]
    _, bodies = await judged(vllm, [QUESTION, {"role": "response_1", "content": parts}, ANSWERS[1]])
    assert bodies[0]["messages"][1] == {"role": "response_1", "content": [{"type": "text", "text": "A pear."}]}


@pytest.mark.parametrize("path", [RESPONSES, CHAT])
@pytest.mark.parametrize("role", ["response_3", "Response_1", "judge", None])
async def test_other_unknown_roles_are_rejected(vllm, path, role):
    reply, bodies = await judged(vllm, [QUESTION, {"role": role, "content": "x"}], path=path)
    assert (reply.status_code, bodies) == (422, [])


@pytest.mark.parametrize(
    ("model", "messages", "message"),
    [
        ("absent", COMPARE, "answered 404.*The model `absent` does not exist"),
        ("judge", [QUESTION, {"role": "developer", "content": "x"}, *ANSWERS], "answered 400.*Unexpected role: dev"),
        ("judge", [QUESTION, ANSWERS[0]], "answered 400.*must end with response_2"),
        ("malformed", COMPARE, "not a JSON object"),
        ("down", COMPARE, "answered 503"),
    ],
)
@pytest.mark.parametrize("path", [RESPONSES, CHAT])
async def test_endpoint_failure_is_a_model_failure(vllm, model, messages, message, path):
    reply, _ = await judged(vllm, messages, model, path, request_tries=1)
    problem = reply.json()
    assert problem["failure_class"] in ("model_failed", "overloaded")
    assert problem["server"] == "genrm_model"
    assert re.search(message, problem["detail"]), problem["detail"]


async def test_starting_endpoint_is_retried(vllm):
    reply, bodies = await judged(vllm, COMPARE, "starting")
    assert (reply.status_code, len(bodies)) == (200, 2)


@pytest.mark.parametrize(
    ("model", "messages", "text", "status"),
    [
        ("judge", [QUESTION, ANSWERS[0], {"role": "response_2", "content": "word " * 500}], "", "incomplete"),
        ("truncated", COMPARE, '{"score_1": 4, "sco', "incomplete"),
        ("empty", COMPARE, "", "completed"),
    ],
)
async def test_replies_without_verdict_are_returned(vllm, model, messages, text, status):
    response = (await judged(vllm, messages, model))[0].json()
    assert (text_of(response), response["status"]) == (text, status)


PLACE = {"host": "", "port": 0, "entrypoint": "", "name": ""}


@pytest.mark.parametrize("route", ["uses_completions_api", "uses_responses_api"])
def test_embedded_judge_has_no_other_routes(route):
    with pytest.raises(ValueError, match=f"{route} needs an endpoint, but `api: embedded` does not have one"):
        GenRMModelConfig(**PLACE, api="embedded", **{route: True})


def test_vllm_needs_an_endpoint():
    with pytest.raises(ValueError, match="api: vllm also needs base_url, api_key, model"):
        GenRMModelConfig(**PLACE)
    with pytest.raises(ValueError, match="also needs model") as caught:
        GenRMModelConfig(**PLACE, base_url="http://x/v1", api_key="sk-secret")
    assert "sk-secret" not in str(caught.value)
    assert GenRMModelConfig(**PLACE, api="embedded").base_url == ""


# The embedded judge

LETTER = "Write a letter of about 20 words about your garden and the neighbours."
GOOD = "Dear neighbours, my garden is full of plums this week, so please come about noon and take a basket home."
SHORT = "Dear neighbours, plums."


async def embedded(messages, path=RESPONSES):
    async with on_a_port(make_server(GenRMModel, api="embedded")) as url:
        return await ask(url, path, messages)


def compared(one, other, request=LETTER):
    answers = [{"role": "response_1", "content": one}, {"role": "response_2", "content": other}]
    return [{"role": "user", "content": request}, *answers]


async def verdict_on(one, other):
    return json.loads(text_of((await embedded(compared(one, other))).json()).strip("`json\n"))


async def test_embedded_judge_prefers_better_answer():
    assert await verdict_on(GOOD, SHORT) == {"score_1": 4, "score_2": 2, "ranking": 1}
    assert await verdict_on(SHORT, GOOD) == {"score_1": 2, "score_2": 4, "ranking": 6}


async def test_embedded_judge_favours_first_of_equals():
    assert (await verdict_on(GOOD, GOOD))["ranking"] == 3


async def test_embedded_judge_serves_chat_completions():
    completion = (await embedded(compared(GOOD, SHORT), CHAT)).json()
    assert '"ranking": 1' in completion["choices"][0]["message"]["content"]


async def test_embedded_judge_answers_other_requests():
    assert "two answers" in text_of((await embedded("Reply with the word OK.")).json())


async def test_embedded_judge_needs_both_answers():
    reply = await embedded([QUESTION, ANSWERS[0]])
    assert (reply.status_code, reply.json()["failure_class"]) == (502, "model_failed")
    assert "got only response_1" in reply.json()["detail"]


def test_words_of_the_request_lose_against_a_good_answer():
    words = LETTER.removesuffix(".").split()
    joined = " and the ".join(words)
    fooling = (
        LETTER,
        f"{LETTER} {LETTER}",
        " ".join(reversed(words)),
        joined,
        " ".join(sorted(words)),
        f"{LETTER} Yes.",
    )
    good = sum(merits_of(LETTER, GOOD))
    assert [answer for answer in fooling if sum(merits_of(LETTER, answer)) > good - CLEARLY] == []


def test_merits_are_between_zero_and_one():
    for answer in ("", "garden", GOOD, "garden neighbours " * 200):
        assert all(0 <= merit <= 1 for merit in merits_of(LETTER, answer))
    assert merits_of(LETTER, "") == (0, 0)
    assert merits_of("Go!", "word " * 60) == (0, 1)
