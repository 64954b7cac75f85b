"""A policy that a row names: which servers use it, and which rows are rejected. Real servers, real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from omegaconf import OmegaConf

from nemo_gym.calls.client import ServerClient
from tests.each_case import each_case
from tests.gateway import Gateway, running_gateway

pytestmark = pytest.mark.slow

KEY = "made-up-key-of-a-row-7788"
ENVIRONMENT = """
from fastapi import Request
from pydantic import ConfigDict

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer, get_response_json, tool


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class Judged(SimpleResourcesServer):
    @tool
    async def add(self, count: int) -> str:
        '''Add to a number.'''
        return "added"

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:
        asked = {"input": body.responses_create_params.input[0].content}
        await get_response_json(await self.server_client.post("judge_model", "/v1/responses", json=asked))
        seen = sorted([*body.model_extra, *request.headers])
        return VerifyResponse(**body.model_dump(), reward=1.0, seen=seen)
"""
PARENT = """
import orjson
from fastapi import Request, Response

from nemo_gym import BaseResponsesAPIAgentConfig, BaseRunRequest, ModelServerRef, SimpleResponsesAPIAgent


class Config(BaseResponsesAPIAgentConfig):
    child: str = ""
    model_server: ModelServerRef | None = None
    has_own_client: bool = False


class Parent(SimpleResponsesAPIAgent):
    config: Config

    async def responses(self, body: BaseRunRequest) -> None:
        raise NotImplementedError

    async def run(self, request: Request, body: BaseRunRequest) -> Response:
        if self.config.has_own_client:
            self.resolve_model_base_url("policy_model")
        reply = await self.server_client.post(self.config.child, "/run", json=await request.json())
        return Response(await reply.read(), reply.status, media_type="application/json")
"""
AGENT = """
{name}:
  responses_api_agents:
    {folder}:
      entrypoint: app.py
      {settings}
"""
MODEL = """
{name}:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: {url}
      openai_api_key: configured-key-3344
      openai_model: configured
"""
OTHERS = """
vllm:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: [{url}, {url}]
      api_key: configured-key-3344
      model: configured
sample:
  responses_api_models:
    sample_model:
      entrypoint: app.py
"""
BY_MODEL = {"policy_model": "openai_agent", "vllm": "vllm_agent", "sample": "sample_agent"}
OF_POLICY = "{{type: responses_api_models, name: {}}}".format
TO_CHILD = "child: openai_agent"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running_gateway() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def run(shared_workplace: Any, gateway: Gateway) -> Iterator[dict[str, str]]:
    """Yield the address of each agent of a run that allows rows to name a policy."""
    place = shared_workplace
    place.environment("judged", ENVIRONMENT)
    place.write("responses_api_agents/parent/app.py", PARENT)
    resources = "resources_server: {type: resources_servers, name: judged}\n      model_server: "
    agents = [(name, "simple_agent", resources + OF_POLICY(model)) for model, name in BY_MODEL.items()]
    agents += [
        ("parent", "parent", f"{TO_CHILD}\n      model_server: {OF_POLICY('policy_model')}"),
        ("without_model", "parent", TO_CHILD),
        ("own_client", "parent", f"has_own_client: true\n      model_server: {OF_POLICY('policy_model')}"),
    ]
    agent = "agent_server: {type: responses_api_agents, name: openai_agent}"
    resources = "resources_server: {type: resources_servers, name: judged}"
    agents.append(("episodes", "single_agent_turn", f"{agent}\n      {resources}"))
    text = "".join(AGENT.format(name=name, folder=folder, settings=given) for name, folder, given in agents)
    text += "".join(MODEL.format(name=name, url=gateway.url(name)) for name in ("policy_model", "judge_model"))
    place.write("run.yaml", text + OTHERS.format(url=gateway.url("vllm")))
    config = "resources_servers/judged/configs/judged.yaml,run.yaml"
    command = place.start_servers(f"+config_paths=[{config}]", "+allow_policy_override=true")
    book = ServerClient.load_from_global_config(OmegaConf.create(_head(command.head))).address_book
    yield {name: "http://{}:{}".format(*book.address_of(name)) for name in book.agent_names()}
    command.end()


def _head(url: str) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": int(url.rpartition(":")[2])}


@pytest.fixture
def send(run, gateway):
    """Return a function that sends a row to an agent and returns the status and the reply."""
    gateway.calls.clear()

    def post(agent: str, text: str = "Add.", headers: dict[str, str] | None = None, **fields: Any) -> Any:
        row = {"responses_create_params": {"input": [{"role": "user", "content": text}]}, **fields}
        content, headers = json.dumps(row), {"content-type": "application/json", **(headers or {})}
        reply = httpx.post(f"{run[agent]}/run", content=content, headers=headers, timeout=60, verify=False)
        return reply.status_code, reply.json()

    return post


def named(gateway: Gateway, **fields: str) -> dict[str, str]:
    return {"policy_base_url": gateway.url("row"), "policy_api_key": KEY, **fields}


@each_case("agent", ["openai_agent", "vllm_agent", "parent", "episodes"])
def test_models_endpoint_is_replaced(send, gateway, agent):
    gateway.calls.clear()
    status, graded = send(agent, **named(gateway, policy_model_name="mine"))
    assert (status, graded["reward"]) == (200, 1.0)
    # The judge's model server keeps its endpoint, its key and its model.
    assert [call[:3] for call in gateway.calls] == [("row", f"Bearer {KEY}", "mine")] * 2 + [
        ("judge_model", "Bearer configured-key-3344", "configured")
    ]


def test_next_row_uses_the_configured_endpoint(send, gateway):
    send("openai_agent", **named(gateway))
    gateway.calls.clear()
    send("openai_agent")
    assert {call[:2] for call in gateway.calls} == {
        (name, "Bearer configured-key-3344") for name in ("policy_model", "judge_model")
    }


@each_case(
    ("fields", "expected"),
    [
        ({"policy_model_name": "adapter"}, ("policy_model", "Bearer configured-key-3344", "adapter")),
        ({"policy_api_key": KEY}, ("policy_model", f"Bearer {KEY}", "configured")),
        ({"policy_base_url": "row"}, ("row", None, "configured")),
        ({"policy_base_url": None}, ("policy_model", "Bearer configured-key-3344", "configured")),
    ],
)
def test_configured_key_stays_at_its_address(send, gateway, fields, expected):
    gateway.calls.clear()
    url = fields.get("policy_base_url")
    send("openai_agent", **(fields | {"policy_base_url": url and gateway.url(url)}))
    assert gateway.calls[0][:3] == expected


def test_row_arrives_otherwise_unchanged(send, gateway):
    fields = {"exact": 2**70, "fraction": 0.1, "text": "\u00e9\ud800", "list": [None, {"a": True}]}
    _, graded = send("openai_agent", **named(gateway), **fields)
    _, without = send("openai_agent", **fields)
    assert graded == without
    assert graded["exact"] == 2**70
    assert not [name for name in [*graded, *graded["seen"]] if "policy" in name]


@each_case("header", ["{", "[1]", '{"policy_base_url": 3}'])
def test_invalid_header_is_no_crash(send, header):
    status, _ = send("openai_agent", headers={"x-nemo-gym-policy": header})
    assert status == (200 if header == "[1]" else 422)


@each_case(
    ("agent", "fields", "message"),
    [
        ("openai_agent", {"policy_base_url": "localhost:8000"}, "must be a URL such as http://127.0.0.1:8000/v1, but"),
        ("openai_agent", {"policy_base_url": "http://host:port/v1"}, "must be a URL"),
        ("openai_agent", {"policy_base_url": "http://user:secret-1@ host/v1"}, "but is ' host/v1'"),
        ("openai_agent", {"policy_base_url": "http://host/v1?x=1"}, "must be a URL"),
        ("openai_agent", {"policy_base_url": 3}, "policy_base_url must be text, but is of type int"),
        ("openai_agent", {"policy_model_name": ""}, "policy_model_name must be text, but is empty"),
        ("openai_agent", {"policy_api_key": "secret-1\nx: y"}, "the row's policy_api_key must be printable ASCII"),
        ("openai_agent", {"policy_api_key": ["secret-1"]}, "policy_api_key must be text, but is of type list"),
        ("sample_agent", {"policy_model_name": "x"}, "sample does not have an endpoint that the policy could replace"),
        ("without_model", {"policy_model_name": "x"}, "without_model does not have a model_server that"),
        (
            "own_client",
            {"policy_model_name": "x"},
            "own_client calls its model with a client that cannot use the policy",
        ),
    ],
)
def test_unusable_policy_is_an_invalid_task(send, gateway, agent, fields, message):
    status, problem = send(agent, **fields)
    assert (status, problem["failure_class"]) == (422, "invalid_task")
    assert message in problem["detail"]
    assert "secret-1" not in str(problem)


def test_row_that_is_not_json_is_rejected(run):
    url, content = f"{run['openai_agent']}/run", b'{"policy_api_key": "secret-1",'
    reply = httpx.post(url, content=content, timeout=60, verify=False)
    assert (reply.status_code, reply.json()["failure_class"]) == (422, "invalid_task")
    assert "secret-1" not in reply.text
