"""Tests of token capture in a model server: all dialects, streamed or not, and every way to miss a call."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import ClassVar

import orjson
import pytest
from fastapi import Request, Response
from fastapi.testclient import TestClient
from starlette.middleware import Middleware

from nemo_gym import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.errors import ModelFailed
from nemo_gym.rollout_correlation import RolloutContextMiddleware
from nemo_gym.token_id_capture import FileTokenStore, RolloutFrozen, TokenEntry
from tests.capture.servers import BODIES, CHAT, RESPONSES, SAID, Model, model_server
from tests.each_case import each_case

PROMPT, SAMPLED, LOG_PROBS = [5, 6, 7], [8, 9], [-0.5, -0.25]
TOKENS = {"prompt_token_ids": PROMPT, "generation_token_ids": SAMPLED, "generation_log_probs": LOG_PROBS}
PREFIX = "/ng-rollout/4-2/training-token-capture"


class TokenModel(Model):
    tokens = TOKENS


class UnevenModel(Model):
    tokens: ClassVar = {**TOKENS, "generation_log_probs": [-0.5]}


class OwnRoute(TokenModel):
    """A model server whose method has a body type of its own, so that its route is not wrapped."""

    async def responses(self, request: Request, body: dict) -> dict:  # type: ignore[override]
        return self.response().model_dump()


class WrittenAnswer(TokenModel):
    """A model server that returns the JSON of its answer."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming):
        return Response(self.response().model_dump_json(), media_type="application/json")


def client_of(kind, observed=None, **block):
    app = model_server(kind, **(observed or {}), token_id_capture={"enabled": True, **block}).setup_webserver()
    # The innermost layer of a served app.
    app.user_middleware.append(Middleware(RolloutContextMiddleware))
    return TestClient(app)


@pytest.fixture
def store(tmp_path):
    return FileTokenStore(tmp_path)


@pytest.fixture
def client(tmp_path):
    return client_of(TokenModel, dir=str(tmp_path))


@each_case("kind", [TokenModel, WrittenAnswer])
@each_case("path", BODIES)
@each_case("is_streamed", [False, True])
def test_call_is_recorded_in_each_dialect(kind, path, is_streamed, tmp_path):
    folder = tmp_path / f"{kind.__name__}{path.replace('/', '-')}{is_streamed}"
    answer = client_of(kind, dir=str(folder)).post(f"{PREFIX}{path}", json={**BODIES[path], "stream": is_streamed})
    assert answer.status_code == 200
    frozen = FileTokenStore(folder).freeze("4-2")
    (entry,) = frozen.entries
    assert frozen.gaps == ()
    assert (entry.prompt_token_ids, entry.generation_token_ids) == (PROMPT, SAMPLED)
    assert entry.generation_log_probs == LOG_PROBS
    said = entry.output_items[entry.token_item_index]
    assert (said["type"], said["name"]) == ("function_call", "look")
    assert not any(name in item for item in entry.output_items for name in TOKENS)


def test_call_is_also_observed(tmp_path):
    observed = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path / "calls")}
    client = client_of(TokenModel, observed, dir=str(tmp_path / "tokens"))
    answer = client.post(f"{PREFIX}{CHAT}", json={"messages": SAID})
    assert answer.json()["choices"][0]["message"]["content"] == "for 4-2"
    (entry,) = FileTokenStore(tmp_path / "tokens").freeze("4-2").entries
    (captured,) = CaptureStore(tmp_path / "calls").read("4-2")
    assert entry.model_call_id == captured["model_call_id"] == answer.headers["x-nemo-gym-model-call"]


@each_case("path", [RESPONSES, "/ng-rollout/4-2/v1/responses"])
def test_call_without_the_segment_is_not_recorded(path, client, tmp_path):
    assert client.post(path, json={"input": SAID}).status_code == 200
    assert list(tmp_path.iterdir()) == []


@each_case(
    ("kind", "gap"),
    [
        (Model, "a call has no token ids: serve the model with return_token_id_information: true"),
        (UnevenModel, "the tokens of a call cannot be used: 2 sampled tokens, but 1 log-probabilities"),
    ],
)
def test_call_without_usable_tokens_is_a_gap(kind, gap, tmp_path):
    folder = tmp_path / kind.__name__
    client_of(kind, dir=str(folder)).post(f"{PREFIX}{RESPONSES}", json={"input": SAID})
    frozen = FileTokenStore(folder).freeze("4-2")
    assert (frozen.entries, frozen.gaps) == ((), (gap,))


@each_case("model", ["refuse", "cut-off"])
def test_call_without_an_answer_is_no_gap(model, client, tmp_path):
    client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID, "model": model})
    assert list(tmp_path.iterdir()) == []


@each_case("path", BODIES)
def test_streamed_failure_is_no_gap(path, client, tmp_path):
    with suppress(ModelFailed):
        client.post(f"{PREFIX}{path}", json={**BODIES[path], "model": "fail", "stream": True})
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
    client = client_of(TokenModel, sink=f"{__name__}:MemorySink", sink_kwargs={"broken": list(broken)})
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
        client_of(TokenModel, sink="nowhere:Sink")


def test_frozen_rollout_refuses_entries(store):
    store.freeze("0-0")
    with pytest.raises(RolloutFrozen, match="rollout 0-0 has ended"):
        store.mark_incomplete("0-0", "late")


def test_answer_keeps_its_tokens_for_agents_that_use_them(client):
    answer = orjson.loads(client.post(f"{PREFIX}{RESPONSES}", json={"input": SAID}).content)
    assert answer["output"][-1]["generation_token_ids"] == SAMPLED
