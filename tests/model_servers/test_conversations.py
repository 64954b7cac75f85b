"""Conversations of an agent with model servers whose endpoint sends odd replies."""

from contextlib import asynccontextmanager

import orjson
import pytest

from nemo_gym import BaseVerifyRequest, ModelFailed, SimpleResourcesServer, tool
from nemo_gym.testing import make_server, run
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.openai_model.app import SimpleModelServer
from responses_api_models.vllm_model.app import VLLMModel
from tests.each_case import each_case
from tests.model_servers.raw_endpoint import raw_endpoint
from tests.model_servers.servers import chat, response, said, written

ITEM = {"type": "function_call", "id": "f1", "call_id": "call_1", "name": "look", "arguments": '{"at":"sea"}'}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sea"}'}}
REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "shore"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
BROKEN = '{"at": "sea'


class Shore(SimpleResourcesServer):
    @tool
    async def look(self, at: str) -> str:
        """Look somewhere."""
        return f"{at}: wet"

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(body.response.last_text == "Hi")


@asynccontextmanager
async def shore(kind):
    """Yield the endpoint, and an agent with an `openai_model` or `vllm_model` server in front of it."""
    async with raw_endpoint() as endpoint:
        names = {"base_url": endpoint.url, "api_key": "sk-secret-1", "model": "m"}
        if kind is SimpleModelServer:
            names = {f"openai_{name}": value for name, value in names.items()}
        model = make_server(kind, **names, request_tries=1, name="policy_model")
        yield endpoint, make_server(SimpleAgent, servers=[make_server(Shore, name="shore"), model], **REFERENCES)


async def played(agent):
    return await run(agent, responses_create_params={"input": "Hello"})


UNRUN = [
    {"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "sh", "input": "ls"},
    {"type": "shell_call", "id": "c", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"},
    {"type": "local_shell_call", "id": "c", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "apply_patch_call", "id": "c", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
    {"type": "computer_call", "id": "c", "call_id": "c", "action": {"type": "screenshot"}},
    {"type": "mcp_approval_request", "id": "c", "name": "x", "arguments": "{}", "server_label": "s"},
    {"type": "novel_call_of_2027", "id": "c", "call_id": "c"},
]


@each_case("item", UNRUN)
async def test_call_that_nobody_runs_fails(item):
    async with shore(SimpleModelServer) as (endpoint, agent):
        endpoint.body = written(response(item))
        with pytest.raises(ModelFailed, match=f"an item of type '{item['type']}', which cannot be run here"):
            await played(agent)


RUN = [
    [UNRUN[1], {"type": "shell_call_output", "call_id": "c", "output": []}],
    [{"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search"}}],
    [{"type": "mcp_call", "id": "w", "name": "x", "arguments": "{}", "server_label": "s", "output": "y"}],
]


@each_case("items", RUN)
async def test_call_that_the_endpoint_ran_is_graded(items):
    async with shore(SimpleModelServer) as (endpoint, agent):
        endpoint.body = written(response(*items, said()))
        assert (await played(agent)).reward == 1.0


ODD = [
    response(said(content=[{"type": "output_text", "text": "Hi", "annotations": None}])),
    response({"type": "reasoning", "content": []}, said()),
    response(id=None, model=None, created_at=None),
    {"output": [said()]},
    response(usage={"input_tokens": 1, "output_tokens": None}),
    response({"type": "novel_item", "x": 1}, said()),
]


@each_case("reply", ODD)
async def test_response_that_differs_a_little_is_graded(reply):
    async with shore(SimpleModelServer) as (endpoint, agent):
        endpoint.body = written(reply)
        graded = await played(agent)
        assert (graded.reward, graded.response.usage and graded.response.usage.total_tokens) in ((1.0, None), (1.0, 7))


@each_case("kind", [SimpleModelServer, VLLMModel])
async def test_ids_of_calls_are_unique_in_the_conversation(kind):
    async with shore(kind) as (endpoint, agent):
        turn = response(ITEM) if kind is SimpleModelServer else chat({"content": None, "tool_calls": [CALL]})
        endpoint.turns = [written(turn), written(turn)]
        endpoint.body = written(response() if kind is SimpleModelServer else chat())
        graded = await played(agent)
        ids = [call.call_id for call in graded.response.tool_calls]
        outputs = [item.call_id for item in graded.response.output if item.type == "function_call_output"]
        assert (len(set(ids)), outputs) == (2, ids)


@each_case("kind", [SimpleModelServer, VLLMModel])
async def test_unreadable_arguments_do_not_end_the_conversation(kind):
    async with shore(kind) as (endpoint, agent):
        call = {**CALL, "function": {"name": "look", "arguments": BROKEN}}
        native = kind is SimpleModelServer
        endpoint.turns = [written(response({**ITEM, "arguments": BROKEN}) if native else chat({"tool_calls": [call]}))]
        endpoint.body = written(response() if native else chat())
        graded = await played(agent)
        sent = endpoint.asked[1]
        found = sent["input"][1] if native else sent["messages"][1]["tool_calls"][0]["function"]
        assert orjson.loads(found["arguments"]) == {"unreadable_arguments": BROKEN}
        assert (graded.reward, [each.arguments for each in graded.response.tool_calls]) == (1.0, [BROKEN])


async def test_unreadable_arguments_with_tokens_end_the_conversation():
    async with shore(SimpleModelServer) as (endpoint, agent):
        tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
        endpoint.body = written(response({**ITEM, "arguments": BROKEN, **tokens}))
        graded = await played(agent)
        assert (graded.reward, len(endpoint.asked)) == (0.0, 1)
