from dataclasses import dataclass, field

from fastapi import Request, Response
from pydantic import PrivateAttr

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT
from nemo_gym.global_config import OBSERVABILITY_ENABLED_KEY_NAME
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ModelCallRef,
    SandboxObservation,
    ToolCallObservation,
)
from responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
)


class ReportingAgentConfig(SimpleAgentConfig):
    helper_name: str = "helper"


@dataclass
class Report:
    base_url: str
    captures_tokens: bool
    observations: AgentObservationBundle
    paths: list[str] = field(default_factory=list)


class ReportingAgent(SimpleAgent):
    config: ReportingAgentConfig
    _reports: dict[str, Report] = PrivateAttr(default_factory=dict)

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        episode = await self._episode(request, response, body)
        if rollout_id := request.path_params.get("rollout_id"):
            self._reports[rollout_id] = Report(
                base_url=self.resolve_model_base_url(self.config.model_server.name, rollout_id),
                captures_tokens=f"/{TOKEN_CAPTURE_PATH_SEGMENT}/" in request.url.path,
                observations=episode.observations,
                paths=[request.url.path, self.url_path_for_request("/v1/responses", request)],
            )
        return episode.response

    async def _episode(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> AgentEpisode:
        answer = await super().responses(request, response, body)
        call = ModelCallRef(model_ref=self.config.model_server, response_id=answer.id)
        conversation = [] if isinstance(body.input, str) else list(body.input)
        main = AgentInvocation(
            invocation_id="main", status="completed", conversation=conversation + answer.output, model_calls=[call]
        )
        helper = AgentInvocation(
            invocation_id=self.config.helper_name,
            parent_invocation_id="main",
            spawned_by_tool_call_id="call_1",
            status="failed",
            error_type="TimeoutError",
            model_calls=[ModelCallRef(model_call_id="never captured")],
        )
        tool = ToolCallObservation(invocation_id=helper.invocation_id, tool_call_id="t", status="timeout")
        sandbox = SandboxObservation(role="verifier", outcome="completed", wall_time_s=1.5, cpu_time_s=0.25)
        bundle = AgentObservationBundle(source="reporting", records=[main, helper, tool, sandbox])
        return AgentEpisode(response=answer, observations=bundle)

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        result = await super().run(request, body)
        rollout_id = self.rollout_id_from_run(body)
        if rollout_id is None:
            return result
        report = self._reports.pop(rollout_id)
        extra = {
            "ng_agent_observations": report.observations.model_dump(mode="json"),
            "base_url": report.base_url,
            "captures_tokens": report.captures_tokens,
            "paths": report.paths,
            "prefix": ROLLOUT_PATH_PREFIX,
            "is_observed": bool(self.server_client.global_config_dict.get(OBSERVABILITY_ENABLED_KEY_NAME)),
        }
        return SimpleAgentVerifyResponse.model_validate({**result.model_dump(mode="json"), **extra})


if __name__ == "__main__":
    ReportingAgent.run_webserver()
