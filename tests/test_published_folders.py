"""Folders in the published style, unchanged: served by `ng_run`, collected from, and tested by their own tests."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest

TOKEN = "hf_0nly4t3st"

MODEL = """
import asyncio
import json
from uuid import uuid4

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)
from nemo_gym.server_utils import SESSION_ID_KEY, is_nemo_gym_fastapi_entrypoint
from fastapi import Request


class CountingModelConfig(BaseResponsesAPIModelConfig):
    model: str
    final_answer: str = "done"


class CountingModel(SimpleResponsesAPIModel):
    config: CountingModelConfig
    calls_by_session: dict = {}

    def model_post_init(self, context):
        super().model_post_init(context)
        self._gate = asyncio.Semaphore(4)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        # Calls the first tool twice, then answers; a model server has its own session along the rollout.
        session_id = request.session[SESSION_ID_KEY]
        async with self._gate:
            calls = self.calls_by_session[session_id] = self.calls_by_session.get(session_id, 0) + 1
        if body.tools and calls <= 2:
            output = [
                NeMoGymResponseFunctionToolCall(
                    arguments=json.dumps({"amount": calls}), call_id=f"call_{uuid4().hex}", name=body.tools[0]["name"]
                )
            ]
        else:
            text = NeMoGymResponseOutputText(annotations=[], text=self.config.final_answer)
            output = [NeMoGymResponseOutputMessage(id=f"msg_{uuid4().hex}", content=[text])]
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=0,
            model=self.config.model,
            object="response",
            output=output,
            parallel_tool_calls=body.parallel_tool_calls,
            tool_choice=body.tool_choice,
            tools=body.tools,
            usage=NeMoGymResponseUsage(
                input_tokens=10,
                input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=0),
                output_tokens=1,
                output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=0),
                total_tokens=11,
            ),
        )

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        message = NeMoGymChatCompletionMessage(role="assistant", content="yes")
        return NeMoGymChatCompletion(
            id="chat",
            choices=[NeMoGymChoice(finish_reason="stop", index=0, message=message)],
            created=0,
            model=self.config.model,
            object="chat.completion",
        )


if __name__ == "__main__":
    CountingModel.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = CountingModel.run_webserver()
"""

LEDGER = """
from typing import Any, Dict, List, Optional

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import compute_pass_majority_metrics, highest_k_metrics
from nemo_gym.server_utils import SESSION_ID_KEY, get_response_json, raise_for_status


class LedgerConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    REVERIFY_MODE = ReverifyMode.UNSUPPORTED


class AddRequest(BaseModel):
    amount: int


class AddResponse(BaseModel):
    total: int


class LedgerRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    start: int = 0


class LedgerSeedRequest(LedgerRunRequest, BaseSeedSessionRequest):
    pass


class LedgerVerifyRequest(LedgerRunRequest, BaseVerifyRequest):
    expected: int


class LedgerVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    total: Optional[int] = None
    judged: str


class LedgerServer(SimpleResourcesServer):
    config: LedgerConfig
    totals: Dict[str, int] = Field(default_factory=dict)
    _opened: List[str] = PrivateAttr(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def seed_session(self, request: Request, body: LedgerSeedRequest) -> BaseSeedSessionResponse:
        self.totals[request.session[SESSION_ID_KEY]] = body.start
        return BaseSeedSessionResponse()

    async def add(self, request: Request, body: AddRequest) -> AddResponse:
        session_id = request.session[SESSION_ID_KEY]
        if session_id not in self.totals:
            raise HTTPException(status_code=400, detail="Session not initialized. Please call seed_session first.")
        self.totals[session_id] += body.amount
        return AddResponse(total=self.totals[session_id])

    async def verify(self, request: Request, body: LedgerVerifyRequest) -> LedgerVerifyResponse:
        total = self.totals.pop(request.session[SESSION_ID_KEY], None)
        response = await self.server_client.post(
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=NeMoGymResponseCreateParamsNonStreaming(
                input=[NeMoGymEasyInputMessage(role="user", content=f"Is {total} what was asked for?")],
                max_output_tokens=5,
            ),
        )
        await raise_for_status(response)
        judgement = NeMoGymResponse.model_validate(await get_response_json(response))
        return LedgerVerifyResponse(
            **body.model_dump(),
            reward=float(total == body.expected and judgement.output_text == "done"),
            total=total,
            judged=judgement.output_text,
        )

    def compute_metrics(self, tasks: List[List[Dict[str, Any]]]) -> Dict[str, Any]:
        return compute_pass_majority_metrics(tasks)[0]

    def get_key_metrics(self, agent_metrics: Dict[str, Any]) -> Dict[str, Any]:
        return highest_k_metrics(agent_metrics, "pass@{k}")


if __name__ == "__main__":
    LedgerServer.run_webserver()
"""

LEDGER_TEST = """
from unittest.mock import AsyncMock, MagicMock

import pytest
from app import LedgerConfig, LedgerServer, LedgerVerifyRequest
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient


class TestApp:
    def _server(self) -> LedgerServer:
        config = LedgerConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="",
            judge_model_server=ModelServerRef(type="responses_api_models", name="judge"),
        )
        return LedgerServer(config=config, server_client=MagicMock(spec=ServerClient))

    def _response(self, text: str) -> NeMoGymResponse:
        content = [NeMoGymResponseOutputText(annotations=[], text=text, type="output_text")]
        message = NeMoGymResponseOutputMessage(
            id="msg", content=content, role="assistant", status="completed", type="message"
        )
        return NeMoGymResponse(
            id="resp",
            created_at=0.0,
            model="dummy",
            object="response",
            output=[message],
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        )

    def _judged(self, server: LedgerServer, text: str) -> None:
        answer = AsyncMock()
        answer.ok = True
        answer.read = AsyncMock(return_value=self._response(text).model_dump_json().encode())
        server.server_client.post = AsyncMock(return_value=answer)

    def test_sanity(self) -> None:
        self._server()

    def test_session_over_http(self) -> None:
        client = TestClient(self._server().setup_webserver())
        assert client.post("/add", json={"amount": 1}).status_code == 400
        row = {"responses_create_params": {"input": "hi"}, "start": 3}
        assert client.post("/seed_session", json=row).status_code == 200
        assert client.post("/add", json={"amount": 4}).json() == {"total": 7}
        assert client.get("/reverify_mode").json() == "unsupported"

    @pytest.mark.parametrize(("text", "reward"), [("done", 1.0), ("no", 0.0)])
    async def test_verify(self, text: str, reward: float) -> None:
        server = self._server()
        self._judged(server, text)
        server.totals["abc"] = 5
        request = MagicMock()
        request.session = {SESSION_ID_KEY: "abc"}
        body = LedgerVerifyRequest(
            responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input="hi"),
            response=self._response("whatever"),
            expected=5,
        )
        assert (await server.verify(request, body)).reward == reward
        assert server.server_client.post.call_args.kwargs["server_name"] == "judge"

    def test_model_construct(self) -> None:
        server = LedgerServer.model_construct(config=None, server_client=None)
        assert server.totals == {}
"""

CATCH_ALL = """
from fastapi import FastAPI, Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    NEMO_GYM_MCP_METADATA_KEY,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    MCPServerMetadata,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import (
    RESULTS_DIR_KEY_NAME,
    DictConfig,
    get_first_server_config_dict,
    get_global_config_dict,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class AnyToolConfig(BaseResourcesServerConfig):
    model_config = ConfigDict(extra="allow")


class AnyToolVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class AnyToolVerifyResponse(AnyToolVerifyRequest, BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class AnyToolServer(SimpleResourcesServer):
    config: AnyToolConfig

    def model_post_init(self, context):
        super().model_post_init(context)
        self._tasks = {}

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        self.setup_session_middleware(app)
        app.post("/{tool_name}")(self.route_to_tool)
        return app

    async def seed_session(
        self, request: Request, body: ResourcesSeedSessionRequest
    ) -> ResourcesSeedSessionResponse:
        self._tasks[request.session[SESSION_ID_KEY]] = body.task_id
        metadata = MCPServerMetadata(server_name=self.config.name, headers={})
        return ResourcesSeedSessionResponse(**{NEMO_GYM_MCP_METADATA_KEY: metadata.model_dump()})

    async def route_to_tool(self, tool_name: str, request: Request) -> dict:
        arguments = await request.json()
        if tool_name == "explode":
            raise ZeroDivisionError("the tool is broken")
        return {"tool": self.normalize_tool_name(tool_name), "arguments": arguments}

    async def verify(self, request: Request, body: AnyToolVerifyRequest) -> AnyToolVerifyResponse:
        config = get_global_config_dict()
        own = get_first_server_config_dict(config, self.config.name)
        told = {
            "task_id": self._tasks[request.session[SESSION_ID_KEY]],
            "results": str(config.get(RESULTS_DIR_KEY_NAME)),
            "flavour": own["flavour"],
            "models": sorted(
                name
                for name, block in config.items()
                if isinstance(block, DictConfig) and "responses_api_models" in block
            ),
        }
        return AnyToolVerifyResponse(**{**body.model_dump(), "told": told, "reward": 1.0})


if __name__ == "__main__":
    AnyToolServer.run_webserver()
"""

LOOP_AGENT = """
import json
from typing import List

from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    accumulate_response_usage,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class LoopAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = None


class LoopAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class LoopAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class LoopAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class LoopAgent(SimpleResponsesAPIAgent):
    config: LoopAgentConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        new_outputs: List = []
        usage = None
        step = 0
        model_server_cookies = None
        resources_server_cookies = request.cookies
        while True:
            step += 1
            model_response = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=body.model_copy(update={"input": body.input + new_outputs}),
                cookies=model_server_cookies,
            )
            await raise_for_status(model_response)
            answered = NeMoGymResponse.model_validate(await get_response_json(model_response))
            model_server_cookies = model_response.cookies
            usage = accumulate_response_usage(usage, answered.usage)
            new_outputs.extend(answered.output)
            if answered.incomplete_details and answered.incomplete_details.reason == "max_output_tokens":
                break
            calls: List[NeMoGymResponseFunctionToolCall] = [o for o in answered.output if o.type == "function_call"]
            messages: List[NeMoGymResponseOutputMessage] = [
                o for o in answered.output if o.type == "message" and o.role == "assistant"
            ]
            if not calls and messages:
                break
            for call in calls:
                api_response = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=resources_server_cookies,
                )
                resources_server_cookies = api_response.cookies
                new_outputs.append(
                    NeMoGymFunctionCallOutput(
                        type="function_call_output",
                        call_id=call.call_id,
                        output=(await api_response.content.read()).decode(),
                    )
                )
            if self.config.max_steps and step >= self.config.max_steps:
                break
        for name, value in (*resources_server_cookies.items(), *model_server_cookies.items()):
            response.set_cookie(name, getattr(value, "value", value))
        answered.output = new_outputs
        answered.usage = usage
        return answered

    async def run(self, request: Request, body: LoopAgentRunRequest) -> LoopAgentVerifyResponse:
        cookies = request.cookies
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(seeded)
        cookies = seeded.cookies
        response = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=cookies,
        )
        await raise_for_status(response)
        cookies = response.cookies
        verify_request = LoopAgentVerifyRequest.model_validate(
            body.model_dump() | {"response": await get_response_json(response)}
        )
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=verify_request.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(verified)
        return LoopAgentVerifyResponse.model_validate(await get_response_json(verified))

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        response = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(response)
        return AggregateMetrics.model_validate(await get_response_json(response))


if __name__ == "__main__":
    LoopAgent.run_webserver()
"""

LOOP_AGENT_TEST = """
from unittest.mock import AsyncMock, MagicMock

import orjson
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.loop_agent.app import LoopAgent, LoopAgentConfig

MESSAGE = {
    "id": "msg",
    "content": [{"annotations": [], "text": "Hello!", "type": "output_text", "logprobs": None}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
}
RESPONSE = {
    "id": "resp",
    "created_at": 1.0,
    "model": "dummy",
    "object": "response",
    "output": [MESSAGE],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class TestApp:
    async def test_responses(self) -> None:
        config = LoopAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="",
            resources_server=ResourcesServerRef(type="resources_servers", name="r"),
            model_server=ModelServerRef(type="responses_api_models", name="my server name"),
        )
        server = LoopAgent(config=config, server_client=MagicMock(spec=ServerClient))
        client = TestClient(server.setup_webserver())
        dotjson_mock = AsyncMock()
        dotjson_mock.ok = True
        dotjson_mock.read.return_value = orjson.dumps(RESPONSE)
        dotjson_mock.cookies = {}
        server.server_client.post.return_value = dotjson_mock

        answer = client.post("/v1/responses", json={"input": [{"role": "user", "content": "hello"}]})
        assert answer.status_code == 200
        assert answer.json()["output"] == [MESSAGE]
        sent = server.server_client.post.call_args.kwargs
        assert (sent["server_name"], sent["url_path"]) == ("my server name", "/v1/responses")
        assert sent["json"].model_dump(exclude_unset=True)["input"][0]["content"] == "hello"
"""

URL_AGENT = """
from typing import Any

from fastapi import Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME, maybe_get_global_config_dict
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import (
    apply_rollout_prefix,
    get_first_server_config_dict,
    get_global_aiohttp_client,
    get_server_url,
    is_global_aiohttp_client_request_debug_enabled,
    raise_for_status,
    request as http_request,
    rollout_path_prefix,
)


class UrlAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    resources_server: ResourcesServerRef


class UrlAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)


class UrlAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class UrlAgent(SimpleResponsesAPIAgent):
    config: UrlAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        client = NeMoGymAsyncOpenAI(
            base_url=self.resolve_model_base_url(self.config.model_server.name), api_key="dummy", internal=True
        )
        return NeMoGymResponse.model_validate(await client.create_response(**body.model_dump(exclude_unset=True)))

    async def run(self, body: UrlAgentRunRequest = Body()) -> UrlAgentVerifyResponse:
        row: dict[str, Any] = body.model_dump(exclude_unset=True)
        rollout_id = f"{row[TASK_INDEX_KEY_NAME]}-{row[ROLLOUT_INDEX_KEY_NAME]}"
        environment = apply_rollout_prefix(get_server_url(self.config.resources_server.name), rollout_id)
        assert environment.endswith(rollout_path_prefix(rollout_id))
        seeded = await http_request("POST", f"{environment}/seed_session", json={**row, "task_id": "t1"})
        await raise_for_status(seeded)
        cookies = {name: cookie.value for name, cookie in seeded.cookies.items()}
        called = await http_request(
            method="POST", url=f"{environment}/mcp__any_tool__look", json={"at": "it"}, cookies=cookies
        )
        tool_answer = await called.json()

        response = await self.responses(body.responses_create_params)
        settings = get_first_server_config_dict(
            self.server_client.global_config_dict, self.config.resources_server.name
        )
        base_url = self.server_client._build_server_base_url(settings)
        async with get_global_aiohttp_client().post(
            f"{base_url}/verify", json={**row, "response": response.model_dump()}, cookies=cookies
        ) as verified:
            result = await verified.json()
        assert maybe_get_global_config_dict() == self.server_client.global_config_dict
        return UrlAgentVerifyResponse.model_validate(
            {
                **result,
                "tool_answer": tool_answer,
                "mcp": (await seeded.json())["mcp"],
                "debug": is_global_aiohttp_client_request_debug_enabled(),
                "status": self.server_client.poll_for_status("head_server"),
            }
        )


if __name__ == "__main__":
    UrlAgent.run_webserver()
"""

CONFIG = """
policy_model:
  responses_api_models:
    counting_model:
      entrypoint: app.py
      model: counter-1
      num_workers: 1
judge_model:
  responses_api_models:
    counting_model: {entrypoint: app.py, model: judge-1, num_workers: 2}
ledger:
  resources_servers:
    ledger:
      entrypoint: app.py
      domain: games
      judge_model_server: {type: responses_api_models, name: judge_model}
ledger_loop_agent:
  responses_api_agents:
    loop_agent:
      entrypoint: app.py
      max_steps: 6
      resources_server: {type: resources_servers, name: ledger}
      model_server: {type: responses_api_models, name: policy_model}
any_tool:
  resources_servers:
    any_tool: {entrypoint: app.py, domain: other, flavour: plum}
any_tool_loop_agent:
  responses_api_agents:
    loop_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: any_tool}
      model_server: {type: responses_api_models, name: policy_model}
any_tool_url_agent:
  responses_api_agents:
    url_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: any_tool}
      model_server: {type: responses_api_models, name: judge_model}
"""
ADD = {
    "type": "function",
    "name": "add",
    "description": "Add to the total.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    "strict": True,
}
FOLDERS = {
    "responses_api_models/counting_model/app.py": MODEL,
    "resources_servers/ledger/app.py": LEDGER,
    "resources_servers/ledger/tests/test_app.py": LEDGER_TEST,
    "resources_servers/any_tool/app.py": CATCH_ALL,
    "responses_api_agents/loop_agent/app.py": LOOP_AGENT,
    "responses_api_agents/loop_agent/tests/test_app.py": LOOP_AGENT_TEST,
    "responses_api_agents/url_agent/app.py": URL_AGENT,
    "published.yaml": CONFIG,
}


def line(tools=(), **fields):
    return {"responses_create_params": {"input": "Begin.", "tools": [*tools]}, **fields}


ROWS = {
    "ledger": [line([ADD], start=1, expected=4, _rowidx="a"), line([ADD], start=1, expected=5)],
    "any_tool": [line([{**ADD, "name": "look"}], colour="red")],
    "broken": [line([{**ADD, "name": "explode"}])],
}


@pytest.fixture(scope="module")
def servers(shared_workplace):
    for path, text in FOLDERS.items():
        shared_workplace.write(path, text)
    for name, rows in ROWS.items():
        shared_workplace.write(f"data/{name}.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    command = shared_workplace.start_servers(
        "+config_paths=[published.yaml]",
        "+results_dir=/somewhere",
        "+global_aiohttp_client_request_debug=true",
        # Nobody listens there: our own servers are asked without it.
        http_proxy="http://127.0.0.1:9",
    )
    yield command
    command.end()


@pytest.fixture(scope="module")
def collect(servers, shared_workplace):
    """Collects the rollouts of one agent; the finished command and its rollouts in order."""

    def collected(agent, rows):
        output = shared_workplace.folder / f"results/{agent}_{rows}.jsonl"
        finished = shared_workplace.run(
            "ng_collect_rollouts",
            f"+agent_name={agent}",
            f"+input_jsonl_fpath=data/{rows}.jsonl",
            f"+output_jsonl_fpath={output}",
            "+num_repeats=2",
        )
        rollouts = [orjson.loads(each) for each in output.read_bytes().splitlines()]
        return finished, sorted(rollouts, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"])), output

    return collected


def test_a_published_environment_agent_and_model_earn_their_rewards(collect):
    finished, rollouts, output = collect("ledger_loop_agent", "ledger")
    assert finished.code == 0, finished.out
    assert [(row["reward"], row["total"], row["judged"]) for row in rollouts] == [
        (1.0, 4, "done"), (1.0, 4, "done"), (0.0, 4, "done"), (0.0, 4, "done"),
    ]  # fmt: skip
    first = rollouts[0]
    assert (first["_rowidx"], first["start"], first["agent_ref"]["name"]) == ("a", 1, "ledger_loop_agent")
    kinds = [item["type"] for item in first["response"]["output"]]
    assert kinds == ["function_call", "function_call_output"] * 2 + ["message"]
    assert [item["output"] for item in first["response"]["output"][1::2]] == ['{"total":2}', '{"total":4}']
    assert first["response"]["usage"]["total_tokens"] == 33
    (metrics,) = orjson.loads(output.with_name(f"{output.stem}_aggregate_metrics.json").read_bytes())
    assert metrics["key_metrics"]["pass@2/accuracy"] == 50.0


def test_a_published_catch_all_route_answers_any_tool_and_reads_the_configuration(collect):
    finished, rollouts, _ = collect("any_tool_loop_agent", "any_tool")
    assert finished.code == 0, finished.out
    assert len(rollouts) == 2
    told = {"task_id": None, "results": "/somewhere", "flavour": "plum", "models": ["judge_model", "policy_model"]}
    assert [row["told"] for row in rollouts] == [told, told]
    assert orjson.loads(rollouts[0]["response"]["output"][1]["output"]) == {
        "tool": "look", "arguments": {"amount": 1},
    }  # fmt: skip
    assert rollouts[0]["colour"] == "red"


def test_a_published_agent_may_call_by_address(collect):
    finished, rollouts, _ = collect("any_tool_url_agent", "any_tool")
    assert finished.code == 0, finished.out
    assert len(rollouts) == 2
    for row in rollouts:
        assert row["tool_answer"] == {"tool": "look", "arguments": {"at": "it"}}
        assert row["told"]["task_id"] == "t1"
        assert row["mcp"] == {"server_name": "any_tool", "url_path": "/mcp", "transport": "http", "headers": {}}
        assert (row["debug"], row["status"]) == (True, "success")


def test_a_broken_tool_is_told_to_the_model_by_an_agent_that_does_not_look_at_the_status(collect):
    finished, rollouts, _ = collect("any_tool_loop_agent", "broken")
    assert finished.code == 0, finished.out
    assert "ZeroDivisionError: the tool is broken" in rollouts[0]["response"]["output"][1]["output"]


@pytest.mark.parametrize("folder", ["resources_servers/ledger", "responses_api_agents/loop_agent"])
def test_the_folders_own_tests_pass(servers, shared_workplace, folder):
    shared_workplace.write("pytest.ini", "[pytest]\nasyncio_mode = auto\n")
    printed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{folder}/tests"],
        cwd=shared_workplace.folder,
        env={**shared_workplace.env, "PYTHONPATH": f"{shared_workplace.folder / folder}:{shared_workplace.folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed.returncode == 0, printed.stdout


SCRIPT = """
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import get_global_config_dict, get_hf_token, maybe_get_global_config_dict
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, ServerClient, get_server_url

assert maybe_get_global_config_dict() is None
print(get_hf_token(), HEAD_SERVER_KEY_NAME in get_global_config_dict())
client = ServerClient.load_from_global_config()
print([client.poll_for_status(name) for name in ("head_server", "ledger", "judge_model")])
gone = ServerClient(
    head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=client.global_config_dict
)
print(gone.poll_for_status("head_server"))
"""


def test_a_script_of_its_own_reads_its_command_line_and_finds_the_servers(servers, shared_workplace):
    host, port = servers.head.removeprefix("http://").split(":")
    script = shared_workplace.write("prepare.py", SCRIPT)
    words = [f"+hf_token={TOKEN}", f"+head_server.host={host}", f"+head_server.port={port}"]
    printed = subprocess.run(
        [sys.executable, script, "-v", *words],
        cwd=shared_workplace.folder,
        env=shared_workplace.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed.stdout.splitlines() == [
        f"{TOKEN} True", "['success', 'success', 'success']", "connection_error",
    ], printed.stderr  # fmt: skip
