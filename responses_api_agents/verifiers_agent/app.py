"""Run the episodes of a verifiers taskset, with the policy of this run as their model."""

from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym import BaseRunRequest
from nemo_gym.jsonl import JsonObject
from responses_api_agents.verifiers_agent.place import WorkerSettings
from responses_api_agents.verifiers_agent.playing import PlayingAgent, PlayingConfig


class VerifiersAgentConfig(WorkerSettings, PlayingConfig):
    """The agent's settings, with the taskset."""


class VerifiersRunRequest(BaseRunRequest):
    """A row: the data of one of the taskset's tasks."""

    model_config = ConfigDict(extra="allow")

    taskset: str
    task: JsonObject


class VerifiersAgent(PlayingAgent):
    """An agent that lets verifiers play and score an episode, in a worker process that serves all rollouts."""

    config: VerifiersAgentConfig
    other_model = "Remove `client` from `env`"

    async def run(self, request: Request, body: VerifiersRunRequest) -> Response:
        """Play the episode of a row, and return the row with its conversation and its rewards."""
        return await self.play(await request.json(), body.taskset, {"task": body.task})


if __name__ == "__main__":
    VerifiersAgent.run_webserver()
