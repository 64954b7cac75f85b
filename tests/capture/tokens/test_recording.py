"""Tests of token capture in a model server: all dialects, streamed or not, and every way to miss a call."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import ClassVar

import orjson
import pytest
from fastapi import HTTPException, Request, Response
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from starlette.middleware import Middleware

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ServerClient,
    SimpleResponsesAPIModel,
    current_rollout_id,
)
from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ModelFailed
from nemo_gym.rollout_correlation import RolloutContextMiddleware
from nemo_gym.testing import call, reply
from nemo_gym.token_id_capture import FileTokenStore, RolloutFrozen, TokenEntry
from tests.each_case import each_case

PROMPT, SAMPLED, LOG_PROBS = [5, 6, 7], [8, 9], [-0.5, -0.25]
TOKENS = {"prompt_token_ids": PROMPT, "generation_token_ids": SAMPLED, "generation_log_probs": LOG_PROBS}
RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
PREFIX = "/ng-rollout/4-2/training-token-capture"
SAID = [{"role": "user", "content": "hi"}]


def response_of(text="yes", **tokens):
    answer = reply(text, call("look", at="it")).model_dump()
    answer["output"][-1] |= tokens
    return NeMoGymResponse.model_validate(answer)


def completion_of(text="yes", **tokens):
    message = {"role": "assistant", "content": text, **tokens}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return NeMoGymChatCompletion.model_validate(
        {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    )


class Model(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        if body.model == "refuse":
            raise HTTPException(429, "later")
        if body.model == "fail":
            raise ModelFailed("the endpoint is down")
        if body.model == "plain":
            return response_of()
        if body.model == "uneven":
            return response_of(**{**TOKENS, "generation_log_probs": [-0.5]})
        if body.model == "cut-off":
            return reply("")
        return response_of(**TOKENS)

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        if body.model == "fail":
            raise ModelFailed("the endpoint is down")
        return completion_of(f"in rollout {current_rollout_id()}", **TOKENS)


class OwnRoute(Model):
    """A model server whose method has a body type of its own, so that its route is not wrapped."""

    async def responses(self, request: Request, body: dict) -> dict:  # type: ignore[override]
        return response_of(**TOKENS).model_dump()


class WrittenAnswer(Model):
    """A model server that returns the JSON of its answer."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming):
        return Response(response_of(**TOKENS).model_dump_json(), media_type="application/json")


def client_of(kind, observed=None, **block):
    address = BaseServerConfig(host="127.0.0.1", port=0)
    config = OmegaConf.create({**(observed or {}), "token_id_capture": {"enabled": True, **block}})
    settings = BaseResponsesAPIModelConfig(host="127.0.0.1", port=0, entrypoint="app.py", name="policy")
    server = kind(config=settings, server_client=ServerClient(head_server_config=address, global_config_dict=config))
    app = server.setup_webserver()
    # The innermost layer of a served app.
    app.user_middleware.append(Middleware(RolloutContextMiddleware))
    return TestClient(app)


@pytest.fixture
def store(tmp_path):
    return FileTokenStore(tmp_path)


@pytest.fixture
def client(tmp_path):
    return client_of(Model, dir=str(tmp_path))


@each_case("kind", [Model, WrittenAnswer])
@each_case(
    ("path", "body"),
    [
        (RESPONSES, {"input": SAID}),
        (RESPONSES, {"input": SAID, "stream": True}),
        (CHAT, {"messages": SAID}),
        (CHAT, {"messages": SAID, "stream": True}),
        (MESSAGES, {"messages": SAID, "max_tokens": 9, "model": "m"}),
        (MESSAGES, {"messages": SAID, "max_tokens": 9, "model": "m", "stream": True}),
    ],
)
def test_call_is_recorded_in_each_dialect(kind, path, body, tmp_path):
    folder = tmp_path / f"{kind.__name__}{path.replace('/', '-')}{body.get('stream')}"
    answer = client_of(kind, dir=str(folder)).post(f"{PREFIX}{path}", json=body)
    assert answer.status_code == 200
    frozen = FileTokenStore(folder).freeze("4-2")
    (entry,) = frozen.entries
    assert frozen.gaps == ()
    assert (entry.prompt_token_ids, entry.generation_token_ids) == (PROMPT, SAMPLED)
    assert entry.generation_log_probs == LOG_PROBS
    said = entry.output_items[entry.token_item_index]
    assert (said["type"], said.get("name")) == (("message", None) if path == CHAT else ("function_call", "look"))
    assert not any(name in item for item in entry.output_items for name in TOKENS)


def test_call_is_also_observed(tmp_path):
    observed = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path / "calls")}
    client = client_of(Model, observed, dir=str(tmp_path / "tokens"))
    answer = client.post(f"{PREFIX}{CHAT}", json={"messages": SAID})
    assert answer.json()["choices"][0]["message"]["content"] == "in rollout 4-2"
    (entry,) = FileTokenStore(tmp_path / "tokens").freeze("4-2").entries
    (captured,) = CaptureStore(tmp_path / "calls").read("4-2")
    assert entry.model_call_id == captured["model_call_id"] == answer.headers["x-nemo-gym-model-call"]


@each_case("path", [RESPONSES, "/ng-rollout/4-2/v1/responses"])
def test_call_without_the_segment_is_not_recorded(path, client, tmp_path):
    assert client.post(path, json={"input": SAID}).status_code == 200
    assert list(tmp_path.iterdir()) == []


@each_case(
    ("model", "gap"),
    [
        ("plain", "a call has no token ids: serve the model with return_token_id_information: true"),
        ("uneven", "the tokens of a call cannot be used: 2 sampled tokens, but 1 log-probabilities"),
    ],
)
def test_call_without_usable_tokens_is_a_gap(model, gap, tmp_path):
    folder = tmp_path / model
    client_of(Model, dir=str(folder)).post(f"{PREFIX}{RESPONSES}", json={"input": SAID, "model": model})
    frozen = FileTokenStore(folder).freeze("4-2")
    assert (frozen.entries, frozen.gaps) == ((), (gap,))


@each_case("model", ["refuse", "cut-off"])
def test_call_without_an_answer_is_no_gap(model, client, tmp_path):
    client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID, "model": model})
    assert list(tmp_path.iterdir()) == []


@each_case("path", [RESPONSES, CHAT, MESSAGES])
def test_streamed_failure_is_no_gap(path, client, tmp_path):
    bodies = {RESPONSES: {"input": SAID}, CHAT: {"messages": SAID}, MESSAGES: {"messages": SAID, "max_tokens": 9}}
    with suppress(ModelFailed):
        client.post(f"{PREFIX}{path}", json={**bodies[path], "model": "fail", "stream": True})
    assert list(tmp_path.iterdir()) == []


def test_route_with_its_own_body_is_a_gap(tmp_path, store):
    client_of(OwnRoute, dir=str(tmp_path)).post(f"{PREFIX}{RESPONSES}", json={"input": SAID})
    (gap,) = store.freeze("4-2").gaps
    assert gap == "the model server overrides nemo_gym's routes, so its tokens cannot be recorded"


def test_late_call_of_a_frozen_rollout_fails(client, store):
    client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID})
    before = store.freeze("4-2")
    with pytest.raises(RolloutFrozen, match="rollout 4-2 has ended, so no more tokens can be recorded for it"):
        client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID})
    assert store.freeze("4-2") == before


class MemorySink:
    """A sink that fails as asked and keeps the calls in memory."""

    stored: ClassVar[list[object]] = []

    def __init__(self, broken=()):
        self.broken = broken

    def put(self, entry):
        if "put" in self.broken:
            raise OSError("the disk is full")
        assert threading.current_thread() is not threading.main_thread()
        # An answer that does not wait for this write would arrive before it.
        time.sleep(0.2)
        self.stored.append(entry)

    def mark_incomplete(self, rollout_id, reason):
        if "mark" in self.broken:
            raise OSError("the disk is full")
        self.stored.append((rollout_id, reason))

    def close(self):
        pass


def answer_with_sink(*broken):
    MemorySink.stored = []
    client = client_of(Model, sink=f"{__name__}:MemorySink", sink_kwargs={"broken": list(broken)})
    return client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID})


def test_answer_follows_its_stored_call():
    assert answer_with_sink().status_code == 200
    (entry,) = MemorySink.stored
    assert isinstance(entry, TokenEntry)
    assert entry.generation_token_ids.tolist() == SAMPLED


def test_failed_write_is_a_gap():
    assert answer_with_sink("put").status_code == 200
    ((rollout_id, reason),) = MemorySink.stored
    assert rollout_id == "4-2"
    assert "the disk is full" in reason


def test_answer_is_withheld_if_nothing_can_be_stored():
    with pytest.raises(ModelFailed, match=r"token_id_capture: .*the disk is full"):
        answer_with_sink("put", "mark")


def test_sink_of_a_missing_class_is_rejected():
    with pytest.raises(Exception, match=r"token_id_capture\.sink: 'nowhere:Sink' cannot be used"):
        client_of(Model, sink="nowhere:Sink")


def test_frozen_rollout_refuses_entries(store):
    store.freeze("0-0")
    with pytest.raises(RolloutFrozen, match="rollout 0-0 has ended"):
        store.mark_incomplete("0-0", "late")


def test_answer_keeps_its_tokens_for_agents_that_use_them(client):
    answer = orjson.loads(client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID}).content)
    assert answer["output"][-1]["generation_token_ids"] == SAMPLED
