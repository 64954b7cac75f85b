"""The server in front of another server's engines, which are programs that behave like one: slow, crashing."""

import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.local_vllm_model.app import LocalVLLMModel
from responses_api_models.local_vllm_model_proxy.app import LocalVLLMModelProxy
from responses_api_models.vllm_model.app import VLLMModel

pytestmark = pytest.mark.slow

STUB = Path(__file__).parents[2] / "local_vllm_model" / "tests" / "stub_engine.py"
PATIENCE_S = 90.0
POLICY = {"type": "responses_api_models", "name": "policy_model"}


def engines_in(folder, **settings):
    """Return a server whose engines run in `folder`."""
    own = {
        "model": "m",
        "engine": "vllm",
        "served_model_name": "short",
        "command": [sys.executable, str(STUB), "--port", "{port}"],
        "env": {"STUB_FOLDER": str(folder)},
        "log_dir": str(folder),
        "start_timeout_s": PATIENCE_S,
        "hang_timeout_s": PATIENCE_S,
        "stop_timeout_s": 1.0,
    }
    return make_server(LocalVLLMModel, name="policy_model", **{**own, **settings})


@asynccontextmanager
async def served(policy, **settings):
    """Yield clients for a server with engines and for the server in front of it."""
    proxy = make_server(LocalVLLMModelProxy, name="judge_model", servers=[policy], model_server=POLICY, **settings)
    async with (
        on_a_port(policy) as direct,
        on_a_port(proxy) as url,
        httpx.AsyncClient(base_url=direct, timeout=PATIENCE_S) as client,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as judge,
    ):
        yield client, judge


async def ask(client, text="Hello"):
    """Return the pid of the engine that answered, and the model's name in the request to it."""
    reply = await client.post("/v1/responses", json={"input": text})
    assert reply.status_code == 200, reply.text
    pid, model = reply.json()["output"][-1]["content"][0]["text"].split()
    return int(pid), model


async def test_engine_of_the_other_server_answers(tmp_path):
    async with served(engines_in(tmp_path)) as (client, judge):
        # The launcher may read the metrics before the first call.
        assert (await judge.get("/metrics")).status_code == 200
        assert await ask(client) == await ask(judge)
        completion = await judge.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
        pid, _ = await ask(judge)
    assert completion.json()["choices"][0]["message"]["content"] == f"{pid} short"


async def test_session_stays_with_one_replica(tmp_path):
    async with served(engines_in(tmp_path, replicas=2)) as (_, judge):
        found = set()
        for _ in range(16):
            async with httpx.AsyncClient(base_url=judge.base_url, timeout=PATIENCE_S) as session:
                pids = {(await ask(session))[0] for _ in range(2)}
            assert len(pids) == 1
            found |= pids
    assert len(found) == 2


@pytest.mark.parametrize("native", [False, True])
async def test_call_survives_a_crash(tmp_path, native):
    async with served(engines_in(tmp_path), uses_responses_api=native) as (_, judge):
        before, _ = await ask(judge)
        after, _ = await ask(judge, "crash")
    assert before != after


async def test_engine_that_restarted_between_calls_is_found(tmp_path):
    async with served(engines_in(tmp_path)) as (client, judge):
        before, _ = await ask(judge)
        os.kill(before, signal.SIGKILL)
        after, _ = await ask(client)
        assert (await ask(judge))[0] == after != before


async def test_final_crash_is_reported_with_its_log(tmp_path):
    async with served(engines_in(tmp_path, max_restarts=1)) as (_, judge):
        reply = await judge.post("/v1/responses", json={"input": "always crash"})
    assert (reply.status_code, reply.json()["failure_class"]) == (502, "model_failed")
    assert "ended with exit code 7 after 1 restart: " in reply.json()["detail"]
    assert "CUDA error: an illegal memory access" in reply.json()["detail"]


async def test_key_of_the_engines_is_used_but_never_shown(tmp_path):
    policy = engines_in(tmp_path, api_key="engine-key-123456", max_restarts=0)
    async with served(policy) as (_, judge):
        await ask(judge)
        reply = await judge.post("/v1/responses", json={"input": "always crash"})
    assert "engine-key-123456" not in reply.text


async def test_server_without_engines_is_reported():
    policy = make_server(VLLMModel, name="policy_model", base_url="http://127.0.0.1:1/v1", api_key="k", model="m")
    async with served(policy) as (_, judge):
        reply = await judge.post("/v1/responses", json={"input": "Hello"})
    assert reply.status_code == 502
    assert "model_server names 'policy_model', which is not a local_vllm_model server" in reply.json()["detail"]


async def test_own_settings_apply(tmp_path):
    policy = engines_in(tmp_path)
    async with served(policy, sampling_overrides={"temperature": 0}) as (_, judge):
        reply = await judge.post("/v1/responses", json={"input": "Hello", "temperature": 1})
    assert reply.json()["temperature"] == 0


@pytest.mark.parametrize("name", ["base_url", "api_key", "model"])
def test_settings_of_the_engines_are_rejected(name):
    with pytest.raises(ValueError, match=f"{name} must not be set, because the server that model_server names"):
        make_server(LocalVLLMModelProxy, model_server=POLICY, **{name: "x"})
