from fastapi import Request, Response

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    accumulate_response_usage,
)
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig, SimpleAgentRunRequest


class SecondLookAgentConfig(SimpleAgentConfig):
    reminder: str = "Please check your answer."


class SecondLookAgentRunRequest(SimpleAgentRunRequest):
    looks: int = 1


class SecondLookAgent(SimpleAgent):
    config: SecondLookAgentConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),
    ) -> NeMoGymResponse:
        first = await super().responses(request, response, body)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        reminder = NeMoGymEasyInputMessage(role="user", content=self.config.reminder)
        second = await super().responses(
            request, response, body.model_copy(update={"input": body.input + first.output + [reminder]})
        )
        second.usage = accumulate_response_usage(first.usage, second.usage)
        second.output = first.output + [reminder] + second.output
        return second


if __name__ == "__main__":
    SecondLookAgent.run_webserver()
