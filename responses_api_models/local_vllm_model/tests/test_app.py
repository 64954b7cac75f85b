"""The server that starts its engines, with a program that behaves like one: slow, crashing, hanging."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from nemo_gym import DataError, ModelFailed
from nemo_gym.testing import make_server, on_a_port
from responses_api_models.local_vllm_model.app import LocalVLLMModel
from responses_api_models.local_vllm_model.crashes import CRASH_PATIENCE_S

pytestmark = pytest.mark.slow

STUB = Path(__file__).with_name("stub_engine.py")
PATIENCE_S = 90.0
KEY = "engine-key-123456"


def server_for(folder, *, env=None, **settings):
    own = {
        "model": "m",
        "api_key": KEY,
        "engine": "vllm",
        "command": [sys.executable, str(STUB), "--port", "{port}"],
        "env": {"STUB_FOLDER": str(folder), **(env or {})},
        "log_dir": str(folder),
        "start_timeout_s": PATIENCE_S,
        "hang_timeout_s": PATIENCE_S,
        "stop_timeout_s": 1.0,
    }
    return make_server(LocalVLLMModel, **{**own, **settings})


@asynccontextmanager
async def served(folder, **settings):
    """Yield a client for a server whose engines run in `folder`, and expect no process of them afterwards."""
    server = server_for(folder, **settings)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        yield client
    assert left_over(folder) == []


def processes(folder):
    """Return the engines and their workers that run."""
    pids = [int(path.stem) for path in folder.glob("*.pid")]
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def left_over(folder):
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


async def ask(client, text="Hello"):
    reply = await client.post("/v1/responses", json={"input": text})
    assert reply.status_code == 200, reply.text
    pid, model = reply.json()["output"][-1]["content"][0]["text"].split()
    return int(pid), model


async def test_engine_answers_and_ends_with_the_server(tmp_path):
    async with served(tmp_path, served_model_name="short", args={"max-model-len": 4096}) as client:
        pid, model = await ask(client)
        config = (await client.get("/get_inner_vllm_config")).json()
        completion = await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
        assert len(processes(tmp_path)) == 2
    assert (pid in map(int, (path.stem for path in tmp_path.glob("*.pid"))), model) == (True, "short")
    assert completion.json()["choices"][0]["message"]["content"] == f"{pid} short"
    (url,) = config["base_url"]
    assert 10001 <= int(url.removeprefix("http://127.0.0.1:").removesuffix("/v1")) <= 20000
    assert (config["api_key"], config["model"]) == (KEY, "short")
    assert "--max-model-len 4096" in (tmp_path / "policy_model_0.log").read_text()


async def test_progress_is_the_last_log_line(tmp_path, caplog):
    caplog.set_level("INFO")
    async with served(tmp_path, env={"STUB_REFUSES_S": "1", "STUB_LOADS_S": "6"}) as client:
        await ask(client)
    assert any(each.startswith("policy_model: the engine starts at port ") for each in caplog.messages)
    assert "Loading safetensors checkpoint shards:  50%" in caplog.messages
    assert not any(KEY in message for message in caplog.messages)


TRACEBACK = f"""\
(Engine pid=3) ERROR 11-30 07:24:19 [core.py:12] Traceback (most recent call last):
(Engine pid=3) ERROR 11-30 07:24:19 [core.py:12]   File "core.py", line 12, in load
(Engine pid=3) ERROR 11-30 07:24:19 [core.py:12] ValueError: no room for {KEY}
Traceback (most recent call last):
  File "server.py", line 3, in run
RuntimeError: Engine core initialization failed. See root cause above."""
VALIDATION = """\
pydantic_core.ValidationError: 1 validation error
  Value error, max_model_len is too large.
    For further information visit https://errors.pydantic.dev"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("usage: engine [--port]\nengine.py: error: no option --x", "engine.py: error: no option --x."),
        (TRACEBACK, "ValueError: no room for ****."),
        (VALIDATION, "ValidationError: 1 validation error Value error, max_model_len is too large."),
        ("PackageNotFoundError: No package metadata was found for vllm", "for vllm. Correct command."),
        ("it gives up", "it gives up."),
    ],
)
async def test_crash_at_load_is_reported_in_one_line(tmp_path, said, cause):
    with pytest.raises(ModelFailed) as caught:
        async with served(tmp_path, env={"STUB_CRASHES": "always", "STUB_ERROR": said}):
            pass
    begin = "policy_model: the engine ended with exit code 1 while it was loading: "
    assert str(caught.value).startswith(begin)
    assert str(caught.value).endswith(f"{cause} Its log is {tmp_path / 'policy_model_0.log'}")
    assert "\n" not in str(caught.value)
    assert left_over(tmp_path) == []


async def test_taken_port_is_replaced(tmp_path):
    env = {"STUB_CRASHES": "once", "STUB_ERROR": "[Errno 98] Address already in use"}
    async with served(tmp_path, env=env) as client:
        await ask(client)


async def test_missing_program_is_reported(tmp_path):
    with pytest.raises(ModelFailed, match=r"cannot start 'no-such-engine': .*\. Correct command\."):
        async with served(tmp_path, command="no-such-engine --port {port}"):
            pass


async def test_slow_load_has_a_limit(tmp_path):
    with pytest.raises(ModelFailed, match=r"was not ready after 1 s \(/health answers 503\)|refuses connections"):
        async with served(tmp_path, env={"STUB_LOADS_S": "3600"}, start_timeout_s=1):
            pass
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"python": "no/python"},
            "policy_model: python 'no/python' not found. Name the interpreter that can import vllm",
        ),
        ({"model": "/no/such"}, "policy_model: model '/no/such' not found"),
    ],
)
async def test_missing_file_is_reported(tmp_path, settings, message):
    with pytest.raises(DataError, match=message):
        async with served(tmp_path, command=None, **settings):
            pass


@pytest.mark.parametrize("native", [False, True])
async def test_call_survives_a_crash(tmp_path, native):
    async with served(tmp_path, uses_responses_api=native) as client:
        before, _ = await ask(client)
        after, _ = await ask(client, "crash")
    assert before != after


async def test_call_survives_a_crash_that_leaves_a_process(tmp_path):
    # The worker lives longer than a caller waits for the end of the engine.
    async with served(tmp_path, env={"STUB_STUBBORN": "1"}, stop_timeout_s=CRASH_PATIENCE_S + 3) as client:
        before, _ = await ask(client)
        after, _ = await ask(client, "crash")
    assert before != after


async def test_restarts_are_limited(tmp_path):
    async with served(tmp_path, max_restarts=1) as client:
        reply = await client.post("/v1/responses", json={"input": "always crash"})
        assert reply.status_code == 502
        assert "ended with exit code 7 after 1 restart: CUDA error: an illegal memory" in reply.json()["detail"]


async def test_hanging_engine_is_restarted(tmp_path):
    async with served(tmp_path, hang_timeout_s=12) as client:
        before, _ = await ask(client)
        after, _ = await ask(client, "hang")
    assert before != after


async def test_session_stays_with_one_replica(tmp_path):
    async with served(tmp_path, replicas=2) as client:
        assert len((await client.get("/get_inner_vllm_config")).json()["base_url"]) == 2
        found = set()
        for _ in range(16):
            async with httpx.AsyncClient(base_url=client.base_url, timeout=PATIENCE_S) as session:
                pids = {(await ask(session))[0] for _ in range(2)}
            assert len(pids) == 1
            found |= pids
    assert len(found) == 2


def test_engine_ends_when_its_server_is_killed(tmp_path):
    script = (
        "import asyncio\n"
        "from responses_api_models.local_vllm_model.tests.test_app import Path, served\n"
        "async def main():\n"
        f"    async with served(Path({str(tmp_path)!r})) as client:\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(processes(tmp_path)) == 2
        os.kill(process.pid, signal.SIGKILL)
    assert left_over(tmp_path) == []


async def test_engine_ends_when_its_keeper_is_killed(tmp_path):
    async with served(tmp_path, max_restarts=0) as client:
        pid, _ = await ask(client)
        engine = psutil.Process(pid)
        engine.parent().kill()
        await asyncio.to_thread(engine.wait, PATIENCE_S)
        for worker in processes(tmp_path):
            # Nothing is left that could end it.
            psutil.Process(worker).kill()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"num_workers": 2}, "num_workers must be 1"),
        ({"base_url": ["http://127.0.0.1:9/v1"]}, "use vllm_model"),
        ({"engine": "tgi"}, "engine"),
        ({"python": sys.executable}, "python is for the engines vllm and sglang without a command"),
    ],
)
def test_wrong_setting_is_reported(tmp_path, settings, error):
    with pytest.raises(DataError, match=error):
        server_for(tmp_path, **settings)
