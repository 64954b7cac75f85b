"""Reasoning in answers and in the requests after them, over real HTTP to a real endpoint."""

import pytest

from responses_api_models.vllm_model.tests.asking import HELLO, complete, model_fails, policy, respond


async def test_reasoning_is_sent_back_and_shown_in_completions(endpoint, bodies):
    async with policy(endpoint, "reasoning") as client:
        first = await client.responses.create(model="m", input="Hello")
        again = [{"role": "user", "content": "Hello"}, *(item.model_dump() for item in first.output)]
        await client.responses.create(model="m", input=[*again, {"role": "user", "content": "Sure?"}])
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    wrapped = "<think>Six times seven.</think>42"
    assert bodies()[1]["messages"][1] == {"role": "assistant", "content": wrapped}
    assert completion.choices[0].message.content == wrapped


@pytest.mark.parametrize(("model", "answer"), [("reasoning", "42"), ("think", "\n\n42")])
async def test_reasoning_is_text_without_parser(endpoint, bodies, model, answer):
    wrapped = f"<think>Six times seven.</think>{answer}"
    async with policy(endpoint, model, uses_reasoning_parser=False) as client:
        first = await client.responses.create(model="m", input="Hello")
        assert ([item.type for item in first.output], first.output_text) == (["message"], wrapped)
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
        await client.responses.create(model="m", input=[*HELLO, reasoning, *first.output, *HELLO])
    assert bodies()[1]["messages"][1] == {"role": "assistant", "content": f"<think>Hm.</think>{wrapped}"}


INTERLEAVED = [
    *HELLO,
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "First."}]},
    {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "cold"},
    {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "Then."}]},
    {"type": "function_call", "call_id": "b", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "b", "output": "warm"},
    {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "Last."}]},
    {"role": "assistant", "content": "Mild."},
    *HELLO,
]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"sends_reasoning": "reasoning"}, "reasoning"),
        ({"sends_reasoning": "reasoning_content"}, "reasoning_content"),
        ({"preserve_reasoning_in_assistant_content": False}, "reasoning_content"),
        ({"preserve_reasoning_in_assistant_content": False, "sends_reasoning": "reasoning"}, "reasoning"),
    ],
)
async def test_interleaved_reasoning_is_sent_in_its_field(endpoint, bodies, settings, field):
    await respond(endpoint, "echo", asked={"input": INTERLEAVED}, **settings)
    said = [message for message in bodies()[0]["messages"] if message["role"] == "assistant"]
    calls = [[call["id"] for call in message.get("tool_calls", [])] for message in said]
    assert [message[field] for message in said] == ["First.", "Then.", "Last."]
    assert ([message["content"] for message in said], calls) == ([None, None, "Mild."], [["a"], ["b"], []])
    assert [message["role"] for message in bodies()[0]["messages"]] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user"
    ]  # fmt: skip


async def test_reasoning_between_calls_stays_in_content(endpoint, bodies):
    settings = {"preserve_reasoning_in_assistant_content": True, "sends_reasoning": "none"}
    await respond(endpoint, "echo", asked={"input": INTERLEAVED}, **settings)
    said = [message["content"] for message in bodies()[0]["messages"] if message["role"] == "assistant"]
    assert said == ["<think>First.</think>", "<think>Then.</think>", "<think>Last.</think>Mild."]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("think", [{"content": "<think>Hm.</think>\n\nYes"}, {"content": "Yes", "reasoning_content": "Hm."}]),
        ("reasoning", [{"content": "\n\nYes", "reasoning": "Hm."}, {"content": "Yes", "reasoning": "Hm."}]),
        ("none", [{"content": "\n\nYes"}, {"content": "Yes"}]),
    ],
)
async def test_reasoning_of_chat_messages_gets_its_form(endpoint, bodies, form, expected):
    said = [{"content": "<think>Hm.</think>\n\nYes"}, {"content": "Yes", "reasoning_content": "Hm."}]
    messages = [{"role": "assistant", **message} for message in said]
    await complete(endpoint, "echo", asked={"messages": [*HELLO, *messages, *HELLO]}, sends_reasoning=form)
    assert bodies()[0]["messages"][1:3] == [{"role": "assistant", **message} for message in expected]


async def test_sequential_reasoning_may_be_rejected(endpoint, bodies):
    hm = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    once, twice = [*HELLO, hm, *HELLO, hm, *HELLO], [*HELLO, hm, hm, *HELLO]
    await respond(endpoint, "echo", asked={"input": twice})
    for parser in (True, False):
        settings = {"sequential_reasoning_allowed": False, "uses_reasoning_parser": parser}
        await respond(endpoint, "echo", asked={"input": once}, **settings)
        with model_fails(r"messages\[1\] has 2 pieces of reasoning.*sequential_reasoning_allowed"):
            await respond(endpoint, "echo", asked={"input": twice}, **settings)
    assert len(bodies()) == 3


async def test_reasoning_stays_separate_without_parser(endpoint, bodies):
    async with policy(endpoint, "reasoning", uses_reasoning_parser=False) as client:
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    assert completion.choices[0].message.content == "42"
    assert completion.choices[0].message.reasoning == "Six times seven."
