"""Run the samples of a task of Inspect, with the policy of this run as their model."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym import BaseRunRequest, ModelServerRef
from nemo_gym.harness import Gateway
from nemo_gym.jsonl import JsonObject
from responses_api_agents.inspect_agent.place import InspectPlace
from responses_api_agents.verifiers_agent.playing import PlayingAgent, PlayingConfig, served


class InspectAgentConfig(InspectPlace, PlayingConfig):
    """The agent's settings, with the task."""

    model_roles: dict[str, ModelServerRef] = Field(default_factory=dict)
    """The model servers of Inspect's model roles, such as `grader`. Without one, the policy has the role."""


class InspectRunRequest(BaseRunRequest):
    """A row: a sample of the task."""

    model_config = ConfigDict(extra="allow")

    inspect_task: str
    sample: JsonObject


class InspectAgent(PlayingAgent):
    """An agent that lets Inspect play and score a sample, in a worker process that serves all rollouts."""

    config: InspectAgentConfig
    other_model = "Remove `model` from the task and its solver"

    async def run(self, request: Request, body: InspectRunRequest) -> Response:
        """Play the sample of a row, and return the row with its conversation and its scores."""
        return await self.play(await request.json(), body.inspect_task, {"sample": body.sample})

    @asynccontextmanager
    async def other_addresses(self) -> AsyncIterator[JsonObject]:
        """Serve the models of the roles, and yield their addresses."""
        async with AsyncExitStack() as stack:
            gateways = {role: Gateway(self.server_client, ref.name) for role, ref in self.config.model_roles.items()}
            yield {"roles": {role: await stack.enter_async_context(served(each)) for role, each in gateways.items()}}


if __name__ == "__main__":
    InspectAgent.run_webserver()
