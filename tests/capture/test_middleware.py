"""Tests of the capture middleware: the records of calls, and unchanged answers for callers."""

import asyncio
import os
import subprocess
import sys

import httpx
import orjson
import pytest

from nemo_gym.base_responses_api_model import CaptureStore, _CaptureMiddleware
from nemo_gym.errors import EndpointError
from tests.capture.servers import BODIES, CHAT, MESSAGES, RESPONSES, client_of

EVENTS = {"content-type": "text/event-stream"}


@pytest.fixture
def store(tmp_path):
    return CaptureStore(tmp_path / "capture")


@pytest.fixture
def client(store):
    return client_of(observability_enabled=True, model_call_capture_dir=str(store.root))


def captured(app, store):
    """Return a function that calls an app through the middleware, and returns its answer and the records."""
    wrapped = _CaptureMiddleware(app, store=store)

    async def ask(path="/ng-rollout/1-0/v1/responses", content=b'{"input": "hi"}', headers=()):
        transport = httpx.ASGITransport(app=wrapped, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://model") as http:
            try:
                answer = await http.post(path, content=content, headers=dict(headers))
            except asyncio.CancelledError:
                answer = None
        return answer, store.read("1-0")

    return ask


def answering(*chunks, status=200, headers=(), error=None):
    """Return an app that reads the request, sends these chunks, and then raises `error` if given."""

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        raw = [(name.encode(), value.encode()) for name, value in dict(headers).items()]
        if chunks:
            await send({"type": "http.response.start", "status": status, "headers": raw})
        for number, chunk in enumerate(chunks):
            is_last = number == len(chunks) - 1 and error is None
            await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})
        if isinstance(error, BaseException):
            raise error

    return app


def test_call_is_recorded_with_request_and_answer(client, store):
    answer = client.post("/ng-rollout/2-1/v1/responses", json={"input": "hi"})
    assert answer.json()["output"][0]["content"][0]["text"] == "for 2-1"
    (record,) = store.read("2-1")
    assert record["request"] == {"input": "hi"}
    assert record["response"] == answer.json()
    assert record["dialect"] == "responses"
    assert record["model_ref"] == {"type": "responses_api_models", "name": "policy"}
    assert record["status_code"] == 200
    assert record["error_category"] is None
    assert record["model_call_id"] == answer.headers["x-nemo-gym-model-call"]
    assert record["latency_ms"] > 0
    assert record["completed_at"] >= record["started_at"]
    assert set(record) == {
        "model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms", "latency_ttft_ms",
        "status_code", "error_category", "request", "response",
    }  # fmt: skip


@pytest.mark.parametrize("prefix", ["/ng-rollout/2-1", "/ng-rollout/2-1/training-token-capture"])
@pytest.mark.parametrize(("path", "dialect"), [(RESPONSES, "responses"), (CHAT, "chat"), (MESSAGES, "messages")])
def test_stream_is_recorded_like_an_unstreamed_answer(client, store, prefix, path, dialect):
    body = BODIES[path]
    plain = client.post(f"{prefix}{path}", json=body).json()
    with_usage = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}
    streamed = client.post(f"{prefix}{path}", json={**body, "stream": True, **with_usage})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    first, second = store.read("2-1")
    assert first["latency_ttft_ms"] is None
    assert second["latency_ttft_ms"] > 0
    assert second["dialect"] == dialect
    assert second["error_category"] is None
    assert second["request"]["stream"] is True
    expected = {**plain, "id": second["response"]["id"]}
    if dialect == "responses":
        # Clients of streams do not accept unknown counts.
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        expected["usage"] = {**expected["usage"], **details}
    assert without_nulls(second["response"]) == without_nulls(expected)
    assert "response_raw" not in second


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("asked", "status", "category"),
    [("refuse", 429, "rate_limit"), ("fail", None, "auth"), ("wait", None, "timeout"), (7, 422, "client_error")],
)
def test_failed_call_is_recorded_with_its_category(client, store, asked, status, category):
    body = {"input": "hi", "model": asked}
    assert client.post("/ng-rollout/2-1/v1/responses", json=body).status_code in (429, 500, 422)
    (record,) = store.read("2-1")
    assert record["error_category"] == category
    assert record["status_code"] == status
    assert record["request"] == body


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, None), (400, "client_error"), (401, "auth"), (403, "auth"), (404, "not_found"), (408, "timeout"),
        (429, "rate_limit"), (500, "upstream_error"), (502, "upstream_error"), (504, "timeout"),
    ],
)  # fmt: skip
async def test_error_status_has_a_category(store, status, category):
    answer, (record,) = await captured(answering(b"{}", status=status), store)()
    assert answer.status_code == status
    assert record["error_category"] == category


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (RuntimeError("no"), "exception"),
        (ConnectionResetError(), "connection"),
        (EndpointError("cut", was_sent=False), "connection"),
        (EndpointError("busy", status=503), "upstream_error"),
    ],
)
async def test_handler_error_is_categorised_and_reaches_the_caller(store, error, category):
    answer, (record,) = await captured(answering(error=error), store)()
    assert answer.status_code == 500
    assert record["error_category"] == category
    assert record["status_code"] is None


COMPLETE = (
    b'event: response.completed\ndata: {"type": "response.completed", "response": {"id": "r", "output": []}}\n\n'
)
FAILED = COMPLETE.replace(b"completed", b"failed")
CREATED = b'data: {"type": "response.created", "response": {"id": "r", "output": []}}\n\n'
ITEM = b'data: {"type": "response.output_item.done", "item": {"type": "message"}}\n\n'


@pytest.mark.parametrize(
    ("chunks", "error", "category", "response"),
    [
        ([COMPLETE[:30], COMPLETE[30:]], None, None, {"id": "r", "output": []}),
        ([FAILED], None, "upstream_error", {"id": "r", "output": []}),
        ([CREATED, ITEM], None, "stream_truncated", {"id": "r", "output": [{"type": "message"}]}),
        ([CREATED, ITEM], asyncio.CancelledError(), "stream_truncated", {"id": "r", "output": [{"type": "message"}]}),
        ([CREATED], RuntimeError("no"), "exception", {"id": "r", "output": []}),
        ([b"data: {not json\n\n"], None, "capture_parse_error", None),
        ([b'data: ["odd"]\n\n'], None, "capture_parse_error", None),
    ],
)  # fmt: skip
async def test_truncated_stream_is_recorded_as_far_as_received(store, chunks, error, category, response):
    _, (record,) = await captured(answering(*chunks, headers=EVENTS, error=error), store)()
    assert record["error_category"] == category
    assert record["response"] == response
    assert record.get("response_raw") == (None if category is None else b"".join(chunks).decode())


async def test_unfinished_answer_is_recorded_as_incomplete(store):
    _, (record,) = await captured(answering(b'{"id": ', error=asyncio.CancelledError()), store)()
    assert record["error_category"] == "incomplete"
    assert record["response_raw"] == '{"id": '


async def test_non_json_bodies_are_kept_as_text(store):
    _, (record,) = await captured(answering(b"<html>"), store)(content=b"input=hi")
    assert record["error_category"] == "capture_parse_error"
    assert (record["request"], record["request_raw"]) == (None, "input=hi")
    assert (record["response"], record["response_raw"]) == (None, "<html>")


async def test_record_is_written_before_answer_ends(store):
    recorded = []

    async def watching(scope, receive, send):
        async def watched_send(message):
            await send(message)
            recorded.append(len(store.read("1-0")))

        await answering(b"{", b"}")(scope, receive, watched_send)

    await captured(watching, store)()
    # The end of the answer was held back until the record was on disk.
    assert recorded == [0, 0, 1]


async def test_only_model_calls_of_rollouts_are_recorded(store):
    ask = captured(answering(b"{}"), store)
    for path in ("/v1/responses", "/ng-rollout/1-0/v1/models", "/ng-rollout/../v1/responses"):
        answer, records = await ask(path=path)
        assert answer.content == b"{}"
        assert records == []
    _, records = await ask(path="/v1/responses", headers={"x-nemo-gym-rollout": "1-0"})
    assert len(records) == 1


async def test_app_sees_path_without_prefix(store):
    async def app(scope, receive, send):
        paths = orjson.dumps([scope["path"], scope["raw_path"].decode()])
        await answering(paths)(scope, receive, send)

    answer, _ = await captured(app, store)(path="/ng-rollout/1-0/training-token-capture/v1/messages")
    assert answer.json() == ["/v1/messages", "/v1/messages"]


def test_write_error_does_not_fail_the_call(client, store):
    store.path_for("2-1").mkdir(parents=True)
    assert client.post("/ng-rollout/2-1/v1/responses", json={"input": "hi"}).status_code == 200
    assert store.is_incomplete("2-1")


@pytest.mark.parametrize("config", [{}, {"observability_enabled": False, "model_call_capture_dir": "/nowhere"}])
def test_capture_is_off_by_default(config):
    answer = client_of(**config).post("/ng-rollout/2-1/v1/responses", json={"input": "hi"})
    assert answer.json()["output"][0]["content"][0]["text"] == "for 2-1"
    assert "x-nemo-gym-model-call" not in answer.headers


OFF = """
import sys
from omegaconf import OmegaConf
import nemo_gym.servers.agent, nemo_gym.servers.resources, nemo_gym.rollouts.runner, nemo_gym.testing
from nemo_gym import BaseResponsesAPIModelConfig, BaseServerConfig, ServerClient, SimpleResponsesAPIModel

class Model(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig
    async def responses(self, body): ...
    async def chat_completions(self, body): ...

config = BaseResponsesAPIModelConfig(host="h", port=0, entrypoint="", name="")
client = ServerClient(head_server_config=BaseServerConfig(host="h", port=0), global_config_dict=OmegaConf.create({}))
Model(config=config, server_client=client).setup_webserver()
print([name for name in sys.modules if name.startswith("nemo_gym.capture")])
"""


def test_capture_is_imported_only_if_enabled():
    printed = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True, env=os.environ)
    assert printed.stdout.strip() == "[]"
