"""The strict engine rejects what vLLM in a trainer rejects, and continues what it sampled."""

from __future__ import annotations

import httpx
import pytest

from tests.frameworks.engine import (
    END,
    MAX_LOGPROBS,
    MAX_MODEL_LEN,
    MODEL,
    OLDER_MODEL,
    TEMPERATURE,
    TOP_P,
    decode,
    encode,
    log_prob,
    make_app,
    script,
)

pytestmark = pytest.mark.slow

SAMPLING = {"model": MODEL, "temperature": TEMPERATURE, "top_p": TOP_P}
TOKENS = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True, "return_token_ids": True}
ASKED = {"role": "user", "content": script("Hello there.", 'add({"count": 2})', "Done.")}


@pytest.fixture
async def ask():
    """Return a function that posts a body to a fresh engine and returns the status and the reply."""
    transport = httpx.ASGITransport(app=make_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:

        async def post(messages, path="/v1/chat/completions", **fields):
            reply = await client.post(path, json={**SAMPLING, **TOKENS, "messages": messages, **fields})
            return reply.status_code, reply.json()

        yield post


def message_of(reply):
    """Return the reply's message with its tokens, as our model server passes it back."""
    choice = reply["choices"][0]
    tokens = {"prompt_token_ids": reply["prompt_token_ids"], "generation_token_ids": choice["token_ids"]}
    return {**choice["message"], **tokens}


async def test_later_prompts_begin_with_sampled_tokens(ask):
    _, first = await ask([ASKED])
    message = message_of(first)
    status, second = await ask([ASKED, message, {"role": "user", "content": "Go on."}])
    before = message["prompt_token_ids"] + message["generation_token_ids"]
    assert status == 200
    assert second["prompt_token_ids"][: len(before)] == before
    assert decode(second["prompt_token_ids"][len(before) :]) == "user\nGo on.assistant\n"
    assert second["choices"][0]["finish_reason"] == "tool_calls"
    assert second["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"count": 2}'}
    # The same text would have other tokens, so the prefix matters.
    assert encode("Hello there.") != message["generation_token_ids"][:-1]


async def test_log_probabilities_belong_to_their_positions(ask):
    _, reply = await ask([ASKED])
    prompt, tokens = reply["prompt_token_ids"], reply["choices"][0]["token_ids"]
    listed = reply["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in listed] == [f"token_id:{token}" for token in tokens]
    assert [each["logprob"] for each in listed] == [
        log_prob(token, len(prompt) + at) for at, token in enumerate(tokens)
    ]
    assert tokens[-1] == END


async def test_prompts_that_lost_sampled_tokens_are_rejected(ask):
    _, first = await ask([ASKED])
    message = message_of(first)
    unlike = {**message, "generation_token_ids": [*encode("Hello there."), END]}
    without = first["choices"][0]["message"]
    changed = {**message, "content": "Hello, there."}
    wrong = {}
    for name, previous in {"other tokens": unlike, "no tokens": without, "other text": changed}.items():
        status, reply = await ask([ASKED, previous, ASKED])
        wrong[name] = status, "required_prefix_token_ids" in reply["error"]["message"]
    assert set(wrong.values()) == {(400, True)}, wrong


async def test_history_of_the_dataset_is_accepted(ask):
    status, _ = await ask([ASKED, {"role": "assistant", "content": "An example."}, ASKED])
    assert status == 200


async def test_required_prefix_may_be_a_field(ask):
    _, first = await ask([ASKED])
    prefix = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    messages = [ASKED, first["choices"][0]["message"], ASKED]
    status, second = await ask(messages, required_prefix_token_ids=prefix)
    assert (status, second["prompt_token_ids"][: len(prefix)]) == (200, prefix)


async def test_other_sampling_than_the_trainers_is_rejected(ask):
    cases = [
        {"temperature": 1.0}, {"temperature": None}, {"top_p": 1}, {"top_k": 20}, {"min_p": 0.1}, {"n": 2},
        {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.1}, {"logit_bias": {"1": 5}},
    ]  # fmt: skip
    accepted = [case for case in cases if (await ask([ASKED], **case))[0] != 400]
    assert accepted == []
    assert (await ask([ASKED], top_k=-1, n=1, min_p=None))[0] == 200


async def test_invalid_top_logprobs_are_rejected(ask):
    cases = [
        ({"top_logprobs": -1}, "must be a positive value"),
        ({"top_logprobs": 2, "logprobs": False}, "`logprobs` must be set to true"),
        ({"top_logprobs": MAX_LOGPROBS + 1}, "greater than max allowed"),
    ]
    wrong = [fields for fields, text in cases if text not in (await ask([ASKED], **fields))[1]["error"]["message"]]
    assert wrong == []
    _, without = await ask([ASKED], top_logprobs=None)
    assert without["choices"][0]["logprobs"] is None


async def test_context_limits_prompt_and_answer(ask):
    status, reply = await ask([{"role": "user", "content": "x " * MAX_MODEL_LEN}])
    assert (status, "maximum context length is" in reply["error"]["message"]) == (400, True)
    status, reply = await ask([ASKED], max_tokens=MAX_MODEL_LEN)
    assert (status, "max_tokens" in reply["error"]["message"]) == (400, True)
    _, reply = await ask([ASKED], max_tokens=5)
    assert (reply["choices"][0]["finish_reason"], reply["choices"][0]["message"]["content"]) == ("length", "Hello")


async def test_older_engine_returns_tokens_elsewhere(ask):
    _, first = await ask([ASKED], model=OLDER_MODEL)
    assert "prompt_token_ids" not in first
    assert "token_ids" not in first["choices"][0]
    sampled = [int(each["token"].removeprefix("token_id:")) for each in first["choices"][0]["logprobs"]["content"]]
    status, tokenized = await ask([ASKED], "/tokenize")
    assert (status, tokenized["count"]) == (200, len(tokenized["tokens"]))
    previous = {"prompt_token_ids": tokenized["tokens"], "generation_token_ids": sampled}
    status, _ = await ask([ASKED, first["choices"][0]["message"] | previous, ASKED], "/tokenize")
    assert status == 200


async def test_unknown_model_is_rejected(ask):
    status, reply = await ask([ASKED], model="another")
    assert (status, reply["error"]["message"]) == (404, "The model `another` does not exist.")
