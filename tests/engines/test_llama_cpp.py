"""What a real llama.cpp answers through `local_vllm_model`, which starts it with a command."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import httpx
import pytest

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.local_vllm_model.app import LocalVLLMModel
from tests.engines.conftest import HERE, LIMIT_S, TOOLS

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]

CONTEXT, LENGTH = 512, 12
KEY = "key-of-llama-cpp-1234"
HELLO = {"role": "user", "content": "Find the door."}
CALL = {"type": "function_call", "call_id": "c1", "name": "turn", "arguments": '{"side": "left"}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "You look to the left."}


@pytest.fixture
def served(python, model, tmp_path):
    """Return a context manager that yields a client for a model server with its own llama.cpp."""

    @asynccontextmanager
    async def serving():
        words = [str(python), str(HERE / "llama_server.py"), "{model}", "{port}", KEY, str(CONTEXT)]
        server = make_server(
            LocalVLLMModel, model=str(model / "tiny.gguf"), engine="llama_cpp", api_key=KEY, command=words,
            log_dir=str(tmp_path), stop_timeout_s=1.0,
        )  # fmt: skip
        async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
            yield client

    return serving


async def ask(client, path, **body):
    reply = await client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def respond(client, *said, **body):
    sent = {"extra_body": json.dumps({"seed": 1, **body.pop("extra_body", {})})}
    return await ask(
        client, "/v1/responses", **{"input": [HELLO, *said], "max_output_tokens": LENGTH, "metadata": sent, **body}
    )


def text_of(answer):
    return answer["output"][-1]["content"][0]["text"]


async def test_answers_of_llama_cpp(served):
    async with served() as client:
        first, second = [await respond(client) for _ in range(2)]
        # The second one has its prompt in the cache.
        assert text_of(first) == text_of(second)
        assert (first["status"], first["usage"]["output_tokens"]) == ("incomplete", LENGTH)
        assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0
        completion = await ask(client, "/v1/chat/completions", messages=[HELLO], max_tokens=LENGTH)
        assert completion["timings"]["predicted_n"] == completion["usage"]["completion_tokens"] == LENGTH
        # Unlike vLLM, it does not force random weights to call tools, but it reads and writes their conversations.
        answer = await respond(client, CALL, RESULT, tools=[TOOLS["turn"]])
        assert answer["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        form = {"type": "json_schema", "name": "side", "schema": TOOLS["turn"]["parameters"]}
        answer = await respond(client, text={"format": form}, max_output_tokens=200)
        assert json.loads(text_of(answer))["side"] in ("left", "right")
        full = await respond(client, {"role": "user", "content": "door " * CONTEXT})
        assert full["incomplete_details"] == {"reason": "max_output_tokens"}
        assert text_of(full) == ""
