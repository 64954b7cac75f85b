import asyncio
import json
import logging
from http.cookies import SimpleCookie
from typing import Any, Dict, List, Optional

from aiohttp import ClientConnectionError, ClientError, ClientResponseError, ClientTimeout
from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    RETRY_ERROR_CODES,
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY
from nemo_gym.server_utils import get_response_json, raise_for_status

LOG = logging.getLogger(__name__)


class PanelAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    second_server: ResourcesServerRef
    model_server: ModelServerRef
    judges: List[ModelServerRef] = Field(default_factory=list)
    max_turns: int = 4
    call_timeout_s: float = 600


class PanelRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class PanelVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class PanelVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class Jar:
    """A jar that merges the cookies of several servers."""

    def __init__(self, cookies=None):
        self.cookies = SimpleCookie()
        self.merge(cookies or {})

    def merge(self, cookies):
        for key, morsel in cookies.items():
            self.cookies[key] = getattr(morsel, "value", morsel)


class PanelAgent(SimpleResponsesAPIAgent):
    """An agent that acts in two environments at once and asks several judges."""

    config: PanelAgentConfig

    async def _post(self, server: str, path: str, payload: Any, jar: Jar) -> Any:
        last: Optional[Exception] = None
        for _ in range(3):
            try:
                response = await self.server_client.post(
                    server_name=server,
                    url_path=path,
                    json=payload,
                    cookies=jar.cookies,
                    timeout=ClientTimeout(total=self.config.call_timeout_s),
                )
                await raise_for_status(response)
            except ClientResponseError as e:
                if e.status not in RETRY_ERROR_CODES:
                    raise
                last = e
            except (ClientConnectionError, asyncio.TimeoutError) as e:
                last = e
            else:
                jar.merge(response.cookies)
                return await get_response_json(response)
        raise RuntimeError(f"{server}{path} failed") from last

    async def _call_tool(self, server: str, path: str, payload: Any, jar: Jar) -> Dict[str, Any]:
        try:
            return await self._post(server, path, payload, jar)
        except ClientResponseError as e:
            LOG.warning("%s refused: %s", e.request_info.real_url, e.message)
            return {"error": f"HTTP {e.status}", "content": e.response_content.decode()}

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        model_jar, jar = Jar(), Jar(request.cookies)
        asked = (
            [NeMoGymEasyInputMessage(role="user", content=body.input)] if isinstance(body.input, str) else body.input
        )
        outputs: List[Any] = []
        for _ in range(self.config.max_turns):
            answer = NeMoGymResponse.model_validate(
                await self._post(
                    self.config.model_server.name,
                    self.url_path_for_request("/v1/responses", request),
                    body.model_copy(update={"input": asked + outputs}),
                    model_jar,
                )
            )
            outputs.extend(answer.output)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                break
            for call in calls:
                replies = await asyncio.gather(
                    self._call_tool(
                        self.config.resources_server.name, f"/{call.name}", json.loads(call.arguments), jar
                    ),
                    self._call_tool(self.config.second_server.name, f"/{call.name}", {"count": "three"}, jar),
                    self._call_tool(self.config.second_server.name, f"/{call.name}_twice", {}, jar),
                )
                outputs.append(NeMoGymFunctionCallOutput(call_id=call.call_id, output=json.dumps(replies)))
        for key, morsel in jar.cookies.items():
            response.set_cookie(key, morsel.value)
        return answer.model_copy(update={"output": outputs})

    async def _opinion(self, judge: ModelServerRef, text: str) -> str:
        params = NeMoGymResponseCreateParamsNonStreaming(input=[{"role": "user", "content": f"Is this fine? {text}"}])
        response = await self.server_client.post(
            server_name=judge.name, url_path="/v1/responses", json=params.model_dump(exclude_unset=True)
        )
        if response.status != 200:
            return f"{response.status}: {await response.text()}"
        return NeMoGymResponse(**(await response.json())).output_text

    async def run(self, request: Request, body: PanelRunRequest) -> PanelVerifyResponse:
        row = body.model_dump()
        jar = Jar(request.cookies)
        servers = [self.config.resources_server.name, self.config.second_server.name]
        await asyncio.gather(*(self._post(server, "/seed_session", row, jar) for server in servers))
        answered = await self._post(
            self.config.name, self.url_path_for_run("/v1/responses", body), body.responses_create_params, jar
        )
        text = NeMoGymResponse.model_validate(answered).output_text
        opinions = await asyncio.gather(*(self._opinion(judge, text) for judge in self.config.judges))
        graded = PanelVerifyRequest.model_validate({**row, "response": answered})
        try:
            verified, second = [await self._post(server, "/verify", graded.model_dump(), jar) for server in servers]
        except (ClientError, RuntimeError) as e:
            failure = {"reward": 0.0, NG_FAILURE_CLASS_KEY: "panel_error", "error": repr(e)}
            return PanelVerifyResponse.model_validate({**row, "response": answered, **failure})
        extra = {"second_reward": second["reward"], "opinions": opinions, "cookie_names": sorted(jar.cookies)}
        return PanelVerifyResponse.model_validate({**verified, **extra})


if __name__ == "__main__":
    PanelAgent.run_webserver()
