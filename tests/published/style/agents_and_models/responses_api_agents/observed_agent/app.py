import json
import time
from typing import Any, Dict, List, Tuple

from fastapi import Request, Response
from pydantic import ConfigDict, PrivateAttr

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
    SandboxObservation,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryToolCall,
    TrajectoryTurn,
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

    _observed: Dict[str, AgentObservationBundle] = PrivateAttr(default_factory=dict)

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        episode, cookies = await self._converse(request, body)
        for name, value in cookies.items():
            response.set_cookie(name, value.value)
        rollout_id = request.path_params.get("rollout_id")
        if rollout_id is not None:
            assert request.url.path.startswith(f"/ng-rollout/{rollout_id}/")
            self._observed[rollout_id] = episode.observations
        return episode.response

    async def _converse(
        self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming
    ) -> Tuple[AgentEpisode, Any]:
        if isinstance(params.input, str):
            params = params.model_copy(update={"input": [NeMoGymEasyInputMessage(role="user", content=params.input)]})
        invocation = AgentInvocation(invocation_id="main")
        records: List[Any] = [invocation]
        outputs: List[Any] = []
        cookies, model_cookies = request.cookies, None
        while True:
            answer = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=params.model_copy(update={"input": params.input + outputs}),
                cookies=model_cookies,
            )
            await raise_for_status(answer)
            model_cookies = answer.cookies
            said = NeMoGymResponse.model_validate(await get_response_json(answer))
            invocation.model_calls.append(ModelCallRef(model_ref=self.config.model_server, response_id=said.id))
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
                        started_at=begun,
                        completed_at=time.time(),
                        timing_source="executor",
                    )
                )
        invocation.status = "completed"
        invocation.conversation = params.input + outputs
        compaction = ContextCompactionObservation(
            invocation_id="main",
            trigger="token_limit",
            tokens_before=100,
            tokens_after=10,
            outcome="completed",
            before_model_call=invocation.model_calls[0],
            after_model_call=ModelCallRef(model_ref=self.config.model_server, response_id="never asked"),
        )
        sandbox = SandboxObservation(role="agent", provider="none", outcome="oom", exit_code=137, peak_memory_mib=64)
        bundle = AgentObservationBundle(
            source=self.config.name,
            records=[*records, compaction, sandbox],
            gaps=[ObservationGap(code="no_subagents", invocation_id="main", detail="this agent starts none")],
        )
        said.output = outputs
        return AgentEpisode(response=said, observations=bundle), cookies

    async def run(self, request: Request, body: ObservedAgentRunRequest) -> ObservedAgentVerifyResponse:
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/seed_session", json=body.model_dump()
        )
        await raise_for_status(seeded)
        answer = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        await raise_for_status(answer)
        response = await get_response_json(answer)
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=body.model_dump() | {"response": response},
            cookies=answer.cookies,
        )
        await raise_for_status(verified)
        result = await get_response_json(verified)
        rollout_id = self.rollout_id_from_run(body)
        if rollout_id is not None:
            bundle = self._observed.pop(rollout_id)
            result["ng_agent_observations"] = bundle.model_dump(mode="json")
            result["ng_trajectory"] = self._trajectory(bundle, body, rollout_id).model_dump(mode="json")
        return ObservedAgentVerifyResponse.model_validate(result)

    def _trajectory(
        self, bundle: AgentObservationBundle, body: ObservedAgentRunRequest, rollout_id: str
    ) -> TrajectoryRecord:
        ids = {"task_id": str((body.model_extra or {})["task_id"]), "rollout_id": rollout_id}
        invocation = bundle.records[0]
        items = [item.model_dump(mode="json") for item in invocation.conversation]
        calls = [item for item in items if item["type"] == "function_call"]
        turn = TrajectoryTurn(
            **ids,
            invocation_id="main",
            turn_no=1,
            timestamp=time.time(),
            question=items[:1],
            answer=items[-1:],
            reasoning_content=[item for item in items if item["type"] == "reasoning"],
            step_count=len(invocation.model_calls),
            model_calls=invocation.model_calls,
        )
        tool_calls = [
            TrajectoryToolCall(
                invocation_id="main", tool_call_id=call["call_id"], tool_name=call["name"], status="completed"
            )
            for call in calls
        ]
        return TrajectoryRecord(**ids, turns=[turn], tool_calls=tool_calls)


if __name__ == "__main__":
    ObservedAgent.run_webserver()
