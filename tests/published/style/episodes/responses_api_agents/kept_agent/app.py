import asyncio
import os
from dataclasses import dataclass
from typing import Dict

from fastapi import Request
from pydantic import Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    AgentSeedSessionRequest,
    AgentSessionSetupError,
    AgentSessionState,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)


class KeptAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef


@dataclass
class KeptState(AgentSessionState):
    tools: str
    plan: str = "good"
    is_open: bool = True


class KeptAgent(SimpleResponsesAPIAgent):
    config: KeptAgentConfig

    states: Dict[str, KeptState] = Field(default_factory=dict)

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> KeptState:
        (access,) = self.effective_tool_accesses(body.tool_accesses)
        state = KeptState(request=body, tools=access.name)
        self.states[body.agent_session_id] = state
        if body.task_id.task_id == "half_open":
            raise AgentSessionSetupError(state, error=RuntimeError("no second program"))
        return state

    async def _close_agent_session_state(self, state: KeptState):
        state.is_open = False
        del self.states[state.request.agent_session_id]
        if state.plan == "dies":
            os._exit(7)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        state = self._require_agent_session(self._agent_session_id_from_request(request))
        said = str(body.input[0].content if isinstance(body.input, list) else body.input)
        word, state.plan = said.removeprefix("Say ").removesuffix(".").split(", ")
        if state.plan == "hangs":
            await asyncio.sleep(3600)
        text = NeMoGymResponseOutputText(annotations=[], text="prune" if state.plan == "wrong" else word)
        return NeMoGymResponse(
            id="r",
            created_at=0,
            model="kept",
            object="response",
            output=[NeMoGymResponseOutputMessage(id="m", content=[text])],
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )

    async def run(self, body: BaseRunRequest = Body()) -> BaseVerifyResponse:
        raise NotImplementedError("this agent only plays episodes")


if __name__ == "__main__":
    KeptAgent.run_webserver()
