import json
import time
from typing import Any, List

from fastapi import Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    ToolCallObservation,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class ObservedAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class ObservedAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class ObservedAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class ObservedAgent(SimpleResponsesAPIAgent):
    config: ObservedAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name,
            url_path=self.url_path_for_request("/v1/responses", request),
            json=body,
            cookies=request.cookies,
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: ObservedAgentRunRequest) -> ObservedAgentVerifyResponse:
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/seed_session", json=body.model_dump()
        )
        await raise_for_status(seeded)
        cookies = seeded.cookies

        params = body.responses_create_params
        if isinstance(params.input, str):
            params = params.model_copy(update={"input": [NeMoGymEasyInputMessage(role="user", content=params.input)]})
        path = self.url_path_for_run("/v1/responses", body)
        main = AgentInvocation(invocation_id="main", agent_name=self.config.name, started_at=time.time())
        records: List[Any] = [main]
        outputs: List[Any] = []
        model_cookies = None
        while True:
            answer = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=path,
                json=params.model_copy(update={"input": params.input + outputs}),
                cookies=model_cookies,
            )
            await raise_for_status(answer)
            model_cookies = answer.cookies
            said = NeMoGymResponse.model_validate(await get_response_json(answer))
            episode = AgentEpisode(
                episode_id=f"episode_{len(main.episodes)}", model_calls=[ModelCallRef(response_id=said.id)]
            )
            main.episodes = [*main.episodes, episode]
            outputs += said.output
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                break
            for call in calls:
                begun = time.time()
                reply = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=cookies,
                )
                cookies = reply.cookies
                text = (await reply.read()).decode()
                outputs.append(
                    NeMoGymFunctionCallOutput(call_id=call.call_id, output=text, type="function_call_output")
                )
                records.append(
                    ToolCallObservation(
                        invocation_id="main",
                        tool_call_id=call.call_id,
                        tool_name=call.name,
                        started_at=begun,
                        completed_at=time.time(),
                        duration_ms=(time.time() - begun) * 1000,
                        timing_source="agent",
                        status="completed" if reply.ok else "failed",
                        output=text,
                    )
                )
        main.completed_at = time.time()
        main.status = "completed"
        records.append(ContextCompactionObservation(invocation_id="main", tokens_before=100, tokens_after=10))
        bundle = AgentObservationBundle(
            source=self.config.name,
            records=records,
            gaps=[ObservationGap(code="no_sandbox", invocation_id="main", detail="there is none")],
        )

        said.output = outputs
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=body.model_dump() | {"response": said.model_dump()},
            cookies=cookies,
        )
        await raise_for_status(verified)
        result = await get_response_json(verified)
        result["ng_agent_observations"] = bundle.model_dump(mode="json")
        return ObservedAgentVerifyResponse.model_validate(result)


if __name__ == "__main__":
    ObservedAgent.run_webserver()
