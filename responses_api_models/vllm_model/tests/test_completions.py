"""Chat requests that are answered with text completions, over real HTTP to a real endpoint."""

import json
import re
from importlib.util import find_spec

import openai
import pytest

from nemo_gym.testing import make_server
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.tests.asking import HELLO, HELLO_IN_PARTS, TOOL, complete, model_fails, policy
from responses_api_models.vllm_model.tests.asking import respond as respond_to

ON = {"uses_completions_api": True}
PROMPT = [ord(char) for char in "Hello"]
CONTEXT = 4096


async def respond(endpoint, model, *, asked=None, **settings):
    return await respond_to(endpoint, model, asked=asked, **ON, **settings)


async def test_rendered_tokens_are_posted_with_remaining_room(endpoint, seen):
    settings = {"extra_body": {"top_k": 3}, "chat_template_kwargs": {"enable_thinking": False}}
    response = await respond(endpoint, "echo", asked={"tools": [TOOL], "reasoning": {"effort": "low"}}, **settings)
    assert (response.output_text, response.status, response.usage.output_tokens) == ("echo: Hello", "completed", 11)
    rendering, completing, _ = [(request["path"], request["body"]) for request in seen()]
    function = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    template = {"chat_template_kwargs": {"reasoning_effort": "low", "enable_thinking": False}, "tools": [function]}
    assert rendering == ("/tokenize", {"model": "echo", "messages": HELLO_IN_PARTS, **template})
    sent = {"model": "echo", "prompt": PROMPT, "max_tokens": CONTEXT - len(PROMPT), "top_k": 3}
    assert completing == ("/v1/completions", sent)


async def test_own_limit_of_the_request_is_kept(endpoint, seen):
    response = await respond(endpoint, "echo", asked={"max_output_tokens": 4})
    assert (response.output_text, response.status) == ("echo", "incomplete")
    completion = await complete(endpoint, "echo", asked={"max_completion_tokens": 4}, **ON)
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("echo", "length")
    sent = [request["body"] for request in seen() if request["path"] == "/v1/completions"]
    assert [(body["max_tokens"], "max_completion_tokens" in body) for body in sent] == [(4, False)] * 2


@pytest.mark.parametrize(
    ("model", "kinds", "text"),
    [
        ("think", ["reasoning", "message"], "\n\n42"),
        ("opens", ["reasoning", "message"], "42"),
        ("opens-length", ["reasoning"], ""),
        ("length", ["reasoning"], ""),
        ("tool-call", ["function_call"], ""),
        ("parallel", ["reasoning", "message", "function_call", "function_call"], "Let me see."),
        ("bad-call", ["message"], "<tool_call>{broken</tool_call>"),
    ],
)
async def test_reasoning_and_calls_are_parsed_from_text(endpoint, model, kinds, text):
    response = await respond(endpoint, model, asked={"tools": [TOOL]})
    assert ([item.type for item in response.output], response.output_text) == (kinds, text)
    calls = [item for item in response.output if item.type == "function_call"]
    assert {(call.name, call.arguments) for call in calls} <= {("get_weather", '{"city":"Oslo"}')}
    assert len({call.call_id for call in calls}) == len(calls)
    choice = (
        await complete(endpoint, model, asked={"tools": [{"type": "function", "function": TOOL}]}, **ON)
    ).choices[0]
    expected = "tool_calls" if calls else "length" if "length" in model else "stop"
    assert (choice.finish_reason, len(choice.message.tool_calls or [])) == (expected, len(calls))


async def test_long_integer_in_a_call_is_not_rounded(endpoint):
    response = await respond(endpoint, "long-integer", asked={"tools": [TOOL]})
    assert json.loads(response.output[0].arguments) == {"number": 10**30 + 1}


async def test_calls_without_tools_remain_text(endpoint, seen):
    for asked in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        assert (await respond(endpoint, "tool-call", asked=asked)).output_text.startswith("<tool_call>")
    assert ["tools" in request["body"] for request in seen() if request["path"] == "/tokenize"] == [False, False]
    response = await respond(endpoint, "parallel", asked={"tools": [TOOL], "parallel_tool_calls": False})
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]


async def test_tokens_for_training_come_from_completions(endpoint, seen):
    async with policy(endpoint, return_token_id_information=True, **ON) as client:
        first = await client.responses.create(model="m", input="Hello")
        last = first.output[-1]
        assert last.prompt_token_ids == PROMPT
        assert last.generation_token_ids == [ord(char) for char in "echo: Hello"]
        assert last.generation_log_probs == [-0.5] * len("echo: Hello")
        await client.responses.create(model="m", input=[*HELLO, last.model_dump(), *HELLO])
    rendered = [request["body"]["messages"] for request in seen() if request["path"] == "/tokenize"]
    assert rendered[1][1] == {"role": "assistant", "content": "echo: Hello"}
    posted = next(request["body"] for request in seen() if request["path"] == "/v1/completions")
    assert (posted["logprobs"], posted["return_token_ids"], "top_logprobs" in posted) == (0, True, False)


async def test_log_probabilities_have_the_chat_form(endpoint):
    completion = await complete(endpoint, "echo", asked={"logprobs": True, "top_logprobs": 1}, **ON)
    token = completion.choices[0].logprobs.content[0]
    assert (token.token, token.logprob, token.bytes, token.top_logprobs[0].token) == ("e", -0.5, [101], "e")


@pytest.mark.parametrize("messages", [[{"role": "user", "content": "a" * CONTEXT}], HELLO])
async def test_prompt_that_fills_the_context_is_incomplete(endpoint, messages):
    asked = {"input": messages} if messages is not HELLO else {"max_output_tokens": CONTEXT}
    response = await respond(endpoint, "echo", asked=asked)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text == ""


IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}


@pytest.mark.parametrize(
    ("model", "asked", "error"),
    [
        ("no-tokenize", {}, "does not serve /tokenize, which renders prompts. Set 'tokenizer'"),
        ("echo", {"input": [IMAGE]}, r"messages\[0\] has a part of type 'image_url'.*only text"),
        ("echo", {"tools": [TOOL], "tool_choice": "required"}, "tool_choice is 'required'.*cannot force a call"),
        ("no-choice", {}, "without choices"),
        ("status:500", {}, "/v1/completions answered 500"),
        ("bad-request", {}, "/v1/completions answered 400.*Unknown field 'spam'"),
    ],
)
async def test_unusable_request_or_answer_is_reported(endpoint, model, asked, error):
    with model_fails(error):
        await respond(endpoint, model, asked=asked, request_tries=1)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("uneven-logprobs", "10 log-probabilities and 11 sets of alternatives for 11 tokens"),
        ("other-prompt", "prompt tokens in the answer's prompt_token_ids .* differ"),
    ],
)
async def test_contradicting_tokens_of_completions_fail(endpoint, model, error):
    with model_fails(error):
        await respond(endpoint, model, return_token_id_information=True)


def test_tokenizer_needs_a_folder_and_its_api(tmp_path):
    settings = {"base_url": "http://x/v1", "api_key": "k", "model": "m"}
    with pytest.raises(ValueError, match=r"folder '.*nowhere' not found. Create it, or leave tokenizer out"):
        make_server(VLLMModel, **settings, **ON, tokenizer=str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="tokenizer needs uses_completions_api"):
        make_server(VLLMModel, **settings, tokenizer=str(tmp_path))


# A local tokenizer

needs_transformers = pytest.mark.skipif(
    not find_spec("transformers"), reason="the package transformers is not installed"
)
TEMPLATE = """{% for message in messages %}{{ message.role }}: {{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{{ call.function.name }} in {{ call.function.arguments.city }}{% endfor %}
{{- '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}
{%- if thinks %}<think>{{ '\\n' }}{% endif %}
{%- if fails %}{{ raise_exception('No such role.') }}{% endif %}"""


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a tokenizer that has one token for each byte, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path, made


@needs_transformers
async def test_local_tokenizer_renders_the_prompt(endpoint, seen, tokenizer):
    folder, made = tokenizer
    arguments = '{"city": "Oslo"}'
    call = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "c", "output": "cold"}
    asked = {"input": [*HELLO, call, output], "max_output_tokens": 50}
    settings = {"tokenizer": str(folder), "chat_template_kwargs": {"thinks": True}}
    response = await respond(endpoint, "opens-length", asked=asked, **settings)
    assert [item.type for item in response.output] == ["reasoning"]
    (request,) = seen()
    assert (request["path"], request["body"]["max_tokens"]) == ("/v1/completions", 50)
    text = made.decode(request["body"]["prompt"])
    assert text == "user: Hello\nassistant: get_weather in Oslo\ntool: cold\nassistant: <think>\n"


@needs_transformers
async def test_failures_of_a_local_tokenizer_are_reported(endpoint, tokenizer):
    folder, _ = tokenizer
    with model_fails("max_output_tokens"):
        await respond(endpoint, "echo", tokenizer=str(folder))
    with model_fails(f"the chat template in {re.escape(str(folder))} failed: No such role"):
        await respond(endpoint, "echo", tokenizer=str(folder), chat_template_kwargs={"fails": True})
    (folder / "tokenizer.json").unlink()
    with model_fails(f"the tokenizer in {re.escape(str(folder))} cannot be loaded"):
        await respond(endpoint, "echo", tokenizer=str(folder))


@pytest.mark.skipif(bool(find_spec("transformers")), reason="transformers is installed")
async def test_missing_transformers_is_reported(endpoint, tmp_path):
    with model_fails("'tokenizer' needs the package transformers: pip install transformers"):
        await respond(endpoint, "echo", tokenizer=str(tmp_path))


CONTINUED = "One part, and another one."
PARTIAL = {"partial_rollouts": "continue", "return_token_id_information": True, **ON}


@pytest.mark.parametrize("step", [1, 10, 26])
async def test_aborted_answer_is_continued_from_its_tokens(endpoint, seen, step):
    async with policy(endpoint, f"aborts-after:{step}", **PARTIAL) as client:
        response = await client.responses.create(model="m", input="Hello", max_output_tokens=100)
    last = response.output[-1]
    assert (response.output_text, response.status) == (CONTINUED, "completed")
    assert (last.prompt_token_ids, last.generation_token_ids) == (PROMPT, [ord(char) for char in CONTINUED])
    assert last.generation_log_probs == [-0.5] * len(CONTINUED)
    assert (response.usage.input_tokens, response.usage.output_tokens) == (len(PROMPT), len(CONTINUED))
    posted = [request["body"] for request in seen() if request["path"] == "/v1/completions"]
    ends = [min(at, len(CONTINUED)) for at in range(0, len(CONTINUED) + step, step)]
    assert [body["prompt"] for body in posted] == [[*PROMPT, *map(ord, CONTINUED[:end])] for end in ends[:-1]]
    assert [body["max_tokens"] for body in posted] == [100 - end for end in ends[:-1]]
    assert [span["tokens"] for span in last.sampling_spans] == [len(CONTINUED[at : at + step]) for at in ends[:-1]]


async def test_limit_of_a_continued_answer_is_that_of_the_request(endpoint):
    response = await respond_to(endpoint, "aborts-after:4", asked={"max_output_tokens": 8}, **PARTIAL)
    assert (response.output_text, response.incomplete_details.reason) == (CONTINUED[:8], "max_output_tokens")


async def test_answer_that_never_goes_on_fails(endpoint):
    with pytest.raises(openai.InternalServerError) as caught:
        await respond_to(endpoint, "aborts-after:0", **PARTIAL)
    problem = caught.value.response.json()
    assert problem["failure_class"] == "overloaded"
    assert "aborted an answer 10 times in a row without a further token" in problem["detail"]


@pytest.mark.parametrize("missing", [*ON, "return_token_id_information"])
def test_continuing_needs_tokens(missing):
    settings = {name: value for name, value in PARTIAL.items() if name != missing}
    with pytest.raises(ValueError, match="partial_rollouts: continue needs the tokens of an answer"):
        make_server(VLLMModel, base_url="http://127.0.0.1:9/v1", api_key="none", model="m", **settings)
