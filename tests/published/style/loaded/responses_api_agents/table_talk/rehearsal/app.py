from fastapi import Request

from responses_api_agents.streak_agent.app import (
    StreakAgent,
    StreakAgentConfig,
    StreakRunRequest,
    StreakVerifyResponse,
)
from responses_api_agents.table_talk.lines import rehearsed


class RehearsalAgentConfig(StreakAgentConfig):
    partners: list[dict[str, str]]


class RehearsalAgent(StreakAgent):
    config: RehearsalAgentConfig

    async def run(self, request: Request, body: StreakRunRequest) -> StreakVerifyResponse:
        params = body.responses_create_params
        body = body.model_copy(
            update={"responses_create_params": params.model_copy(update={"input": rehearsed(params.input)})}
        )
        return await super().run(request, body)


if __name__ == "__main__":
    RehearsalAgent.run_webserver()
