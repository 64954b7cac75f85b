"""The agent for Aviary environments: model and environment alternate until the environment is done."""

import orjson
from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
    Conversation,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ResourcesServerRef,
    SimpleResponsesAPIAgent,
    relayed_metrics,
)
from nemo_gym.jsonl import JsonObject
from responses_api_agents.aviary_agent.episode import Begun, Episode


class AviaryAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=100, ge=1)
    """The maximum number of model turns. At this limit, the rollout is graded, even if the environment is not done."""


class AviaryAgentRunRequest(BaseRunRequest):
    """The body of `/run`: a dataset row with any further fields that the environment needs."""

    model_config = ConfigDict(extra="allow")


class AviaryAgent(SimpleResponsesAPIAgent):
    """An agent that opens an environment, alternates between model and environment, and has the rollout verified."""

    config: AviaryAgentConfig

    EPISODE_ROUTES = ("/seed_session", "/step")

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Return the model's next turn only. An environment needs a row, so use `/run` for a rollout."""
        path = self.url_path_for_request("/v1/responses", request)
        conversation = Conversation(params=body.model_dump(mode="json", exclude_unset=True), model_path=path)
        await conversation.ask(self.server_client, self.config.model_server.name)
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def run(self, request: Request, body: AviaryAgentRunRequest) -> Response:
        """Run the rollout of one row, and return the graded row."""
        row: JsonObject = await request.json()
        episode = Episode(self.server_client, self.config.resources_server.name, dict(request.cookies))
        begun = await episode.seed(row)
        try:
            path = self.url_path_for_run("/v1/responses", row)
            conversation = Conversation(params=_asked(row["responses_create_params"], begun), model_path=path)
            await self._act(conversation, episode)
            # Record the request that the model got, because the row lacks the first observation and the tools.
            answered = {**row, "responses_create_params": conversation.params, "response": conversation.response}
            if not self.config.skip_verification:
                return Response(await episode.verify(answered), media_type="application/json")
        finally:
            await episode.close()
        graded = {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        return Response(orjson.dumps({**answered, **graded}), media_type="application/json")

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the resources server's metrics of all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        return await relayed_metrics(self.server_client, self.config.resources_server.name, body)

    async def _act(self, conversation: Conversation, episode: Episode) -> None:
        while self.config.max_steps is None or conversation.turns < self.config.max_steps:
            heard = len(conversation.said)
            await conversation.ask(self.server_client, self.config.model_server.name)
            step = await episode.step(conversation.said[heard:])
            conversation.said.extend(step.obs)
            # Stop after a truncated turn, because it has used up the tokens.
            if step.done or conversation.was_cut_off:
                return


def _asked(params: JsonObject, begun: Begun) -> JsonObject:
    given = params["input"]
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    return {**params, "input": [*items, *begun.obs], "tools": begun.tools}


if __name__ == "__main__":
    AviaryAgent.run_webserver()
