"""The cache of model replies: a repeated evaluation asks the endpoint nothing, and training never uses it."""

from __future__ import annotations

import http.server
import json
import random
import threading

import orjson
import pytest

from nemo_gym.context.rollout_id import rollout_context
from nemo_gym.errors import UsageError
from nemo_gym.http.reply_cache import Counts, ReplyCache, counts_of
from nemo_gym.training import TrainingClient
from tests.rows import rows_of

pytestmark = pytest.mark.slow

COUNTER = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
CALL_NAME = "get_counter_value"


class Dicing(http.server.BaseHTTPRequestHandler):
    """An endpoint that first calls a tool and then says a random number, in OpenAI's dialects and in Anthropic's."""

    protocol_version = "HTTP/1.1"
    calls = 0
    fails = False

    def do_POST(self) -> None:
        Dicing.calls += 1
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number = str(random.random())
        if self.path.endswith("/messages"):
            self._send(200, "text/event-stream", self._events(asked, number))
            return
        answer = self._chat(asked, number) if "messages" in asked else self._response(asked, number)
        if Dicing.fails:
            answer = {"error": {"message": "no room"}}
        # Some gateways repeat the headers of the request.
        data = json.dumps({"model": asked["model"], "debug": self.headers["authorization"], **answer}).encode()
        self._send(503 if Dicing.fails else 200, "application/json", data)

    def _send(self, status, media_type, data):
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _events(self, asked, number):
        block = {"type": "text", "text": number}
        if len(asked["messages"]) == 1:
            block = {"type": "tool_use", "id": f"call-{number}", "name": CALL_NAME, "input": {}}
        message = {"id": number, "type": "message", "role": "assistant", "model": asked["model"], "content": []}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]
        return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()

    def _chat(self, asked, number):
        call = {"id": f"call-{number}", "type": "function", "function": {"name": CALL_NAME, "arguments": "{}"}}
        message = {"role": "assistant", "content": number}
        if not any(each["role"] == "tool" for each in asked["messages"]):
            message |= {"tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": number, "object": "chat.completion", "created": 0, "choices": [choice]}

    def _response(self, asked, number):
        text = {"type": "output_text", "text": number, "annotations": []}
        item = {
            "type": "message",
            "id": f"msg-{number}",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        if not any(each.get("type") == "function_call_output" for each in asked["input"]):
            item = {"type": "function_call", "call_id": f"call-{number}", "name": CALL_NAME, "arguments": "{}"}
        return {
            "id": number, "object": "response", "created_at": 0, "output": [item], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [],
        }  # fmt: skip

    def log_message(self, *_: object) -> None:
        """Disable request logging."""


@pytest.fixture
def endpoint():
    Dicing.calls, Dicing.fails = 0, False
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dicing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def words(folder, name, endpoint, model="openai_model", **settings):
    given = {"split": "example", "num_repeats": 2, "model_cache": folder / "cache", **settings}
    return [
        f"+config_paths=[{COUNTER},responses_api_models/{model}/configs/{model}.yaml]",
        f"+output_jsonl_fpath={folder / name}.jsonl", "+head_server.port=0", f"+policy_base_url={endpoint}",
        "+policy_api_key=key-that-is-not-stored", "+policy_model_name=dice",
        *(f"+{key}={value}" for key, value in given.items()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "model", ["openai_model", "anthropic_model", pytest.param("vllm_model", marks=pytest.mark.slow)]
)
def test_repeated_evaluation_asks_endpoint_nothing(workplace, endpoint, model):
    def collect(name, **settings):
        finished = workplace.run(
            "ng_e2e_collect_rollouts", *words(workplace.folder, name, endpoint, model, **settings)
        )
        assert finished.code == 0, finished.err
        rows = rows_of(workplace.folder / f"{name}.jsonl")
        said = {
            (row["_ng_task_index"], row["_ng_rollout_index"]): row["response"]["output"][-1]["content"][0]["text"]
            for row in rows
        }
        record = orjson.loads((workplace.folder / f"{name}_run.json").read_bytes())
        return said, record["model_cache"], finished.out

    first, counts, out = collect("first")
    assert (len(set(first.values())), Dicing.calls) == (10, 20)
    assert counts == {"hits": 0, "misses": 20}
    assert "model cache: 0 hits, 20 misses" in out
    assert collect("second")[:2] == (first, {"hits": 20, "misses": 0})
    assert Dicing.calls == 20
    # Another request is another key, and so is another repeat.
    third, counts, _ = collect("third", num_repeats=3)
    assert first.items() < third.items()
    assert counts == {"hits": 20, "misses": 10}
    _, counts, _ = collect("hot", **{"responses_create_params.temperature": 0.5})
    assert counts == {"hits": 0, "misses": 20}
    stored = b"".join(path.read_bytes() for path in (workplace.folder / "cache").rglob("*.json"))
    assert b"key-that-is-not-stored" not in stored


def test_failed_calls_are_not_cached(workplace, endpoint):
    Dicing.fails = True
    given = words(workplace.folder, "failing", endpoint, num_repeats=1, limit=1, max_attempts=1)
    given.append("++policy_model.responses_api_models.openai_model.request_tries=1")
    assert workplace.run("ng_e2e_collect_rollouts", *given).code == 1
    assert not list((workplace.folder / "cache").rglob("*.json"))


def test_cache_is_refused_for_training(workplace, endpoint):
    refused = workplace.run("ng_e2e_collect_rollouts", *words(workplace.folder, "a", endpoint, split="train"))
    assert (refused.code, "must not be trained on" in refused.err) == (1, True)
    tokens = {"token_id_capture": f"{{enabled: true, dir: {workplace.folder / 'tokens'}}}"}
    refused = workplace.run("ng_e2e_collect_rollouts", *words(workplace.folder, "b", endpoint, **tokens))
    assert (refused.code, "must not be trained on" in refused.err) == (1, True)
    ids = words(workplace.folder, "c", endpoint, "vllm_model")
    ids.append("++policy_model.responses_api_models.vllm_model.return_token_id_information=true")
    refused = workplace.run("ng_e2e_collect_rollouts", *ids)
    assert (refused.code, "must not be trained on" in refused.err) == (1, True)
    assert Dicing.calls == 0


async def test_cached_run_is_refused_to_trainers(workplace, endpoint):
    folder = workplace.folder
    command = workplace.start_servers(
        f"+config_paths=[{COUNTER},responses_api_models/openai_model/configs/openai_model.yaml]",
        f"+model_cache={folder / 'cache'}", f"+policy_base_url={endpoint}", "+policy_api_key=a",
        "+policy_model_name=a",
    )  # fmt: skip
    with pytest.raises(UsageError, match="cannot be used for training"):
        async with TrainingClient(command.head):
            pass


@pytest.mark.parametrize("folder", ["relative", "file", 3, "/proc/cache"])
def test_cache_must_be_a_folder(workplace, endpoint, folder):
    workplace.write("file", "")
    given = words(
        workplace.folder, "a", endpoint, model_cache=workplace.folder / "file" if folder == "file" else folder
    )
    refused = workplace.run("ng_e2e_collect_rollouts", *given)
    assert (refused.code, "model_cache" in refused.err) == (1, True)


async def test_keys_differ_by_endpoint_request_and_repeat(tmp_path):
    cache = ReplyCache(tmp_path, "run").opened()
    with rollout_context("3-1"):
        key = cache.key_of("http://a/v1/responses", b"{}")
        assert key != cache.key_of("http://b/v1/responses", b"{}")
        assert key != cache.key_of("http://a/v1/responses", b"{1}")
    with rollout_context("4-1"):
        assert key == cache.key_of("http://a/v1/responses", b"{}")
    for other in ("3-2", "3-1-a2"):
        with rollout_context(other):
            assert key != cache.key_of("http://a/v1/responses", b"{}")
    assert await cache.read(key) is None
    await cache.write(key, b'{"a": 1}')
    assert await cache.read(key) == b'{"a": 1}'
    await cache.write("another", b'{"a": NaN}')
    assert await cache.read("another") is None
    assert counts_of(tmp_path, "run") == Counts(1, 2)
    assert counts_of(tmp_path, "other") == Counts()
    (tmp_path / "calls" / "run").unlink()
    (tmp_path / "calls" / "run").mkdir()
    assert await cache.read(key) == b'{"a": 1}'
