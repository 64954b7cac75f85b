import json
import logging
from typing import List, Optional

from aiohttp import ClientResponseError
from fastapi import Request, Response
from pydantic import ConfigDict, ValidationError

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
    NeMoGymResponseUsage,
    accumulate_response_usage,
)
from nemo_gym.server_utils import get_response_json, raise_for_status

LOG = logging.getLogger(__name__)


class ToolLoopAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: Optional[int] = None


class ToolLoopAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class ToolLoopAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class ToolLoopAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class ToolLoopAgent(SimpleResponsesAPIAgent):
    config: ToolLoopAgentConfig

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
        usage: Optional[NeMoGymResponseUsage] = None
        step = 0
        # The model server has its own session.
        model_server_cookies = None
        resources_server_cookies = request.cookies

        while True:
            step += 1
            new_body = body.model_copy(update={"input": body.input + new_outputs})
            model_response = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=new_body,
                cookies=model_server_cookies,
            )
            await raise_for_status(model_response)
            model_response_json = await get_response_json(model_response)
            model_server_cookies = model_response.cookies
            try:
                answered = NeMoGymResponse.model_validate(model_response_json)
            except ValidationError as e:
                raise RuntimeError(f"Received an invalid response from model server: {model_response_json}") from e

            output = answered.output
            new_outputs.extend(output)
            usage = accumulate_response_usage(usage, answered.usage)

            if answered.incomplete_details and answered.incomplete_details.reason == "max_output_tokens":
                break

            calls: List[NeMoGymResponseFunctionToolCall] = [o for o in output if o.type == "function_call"]
            said: List[NeMoGymResponseOutputMessage] = [
                o for o in output if o.type == "message" and o.role == "assistant"
            ]
            if not calls and said:
                break

            for call in calls:
                api_response = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=resources_server_cookies,
                )
                try:
                    await raise_for_status(api_response)
                    tool_output = (await api_response.content.read()).decode()
                except ClientResponseError as e:
                    # Return the error to the model, so that it can try again.
                    LOG.warning("%s failed with %s", call.name, e.status)
                    tool_output = json.dumps({"status": e.status, "error": e.response_content.decode()})
                resources_server_cookies = api_response.cookies
                new_outputs.append(
                    NeMoGymFunctionCallOutput(type="function_call_output", call_id=call.call_id, output=tool_output)
                )

            if self.config.max_steps and step >= self.config.max_steps:
                break

        for k, v in (*resources_server_cookies.items(), *model_server_cookies.items()):
            response.set_cookie(k, getattr(v, "value", v))

        answered.output = new_outputs
        answered.usage = usage
        return answered

    async def run(self, request: Request, body: ToolLoopAgentRunRequest) -> ToolLoopAgentVerifyResponse:
        cookies = request.cookies

        seed_session_response = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(seed_session_response)
        cookies = seed_session_response.cookies

        response = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=cookies,
        )
        await raise_for_status(response)
        cookies = response.cookies
        answered = await get_response_json(response)

        if self.config.skip_verification:
            return ToolLoopAgentVerifyResponse.model_validate(
                body.model_dump()
                | {
                    "response": answered,
                    "reward": self.config.skip_verification_reward,
                    "verification_skipped": True,
                }
            )

        verify_request = ToolLoopAgentVerifyRequest.model_validate(body.model_dump() | {"response": answered})
        verify_response = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=verify_request.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(verify_response)
        return ToolLoopAgentVerifyResponse.model_validate(await get_response_json(verify_response))

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        response = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/aggregate_metrics",
            json=body,
        )
        await raise_for_status(response)
        return AggregateMetrics.model_validate(await get_response_json(response))


if __name__ == "__main__":
    ToolLoopAgent.run_webserver()
