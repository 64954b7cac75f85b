"""An agent with a loop of its own: it has the model review each answer before the answer is graded."""

from fastapi import Request
from pydantic import Field

from nemo_gym import (
    BaseRunRequest,
    Conversation,
    ConversingAgent,
    ConversingAgentConfig,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.jsonl import JsonObject

REVIEW = "Check your answer against the task. Then write the whole answer again, corrected if necessary."


class MyEnvironmentAgentConfig(ConversingAgentConfig):
    reviews: int = Field(default=1, ge=0)
    """How often the model reviews its answer."""


class MyEnvironmentAgent(ConversingAgent):
    """The base class seeds the session, grades the conversation and cleans up."""

    config: MyEnvironmentAgentConfig

    async def converse(
        self, request: Request, body: BaseRunRequest, row: JsonObject, session: dict[str, str]
    ) -> Conversation:
        """Run the conversation of a row."""
        return await self._reviewed(row["responses_create_params"], session)

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Answer a conversation outside of a rollout."""
        params = body.model_dump(mode="json", exclude_unset=True)
        conversation = await self._reviewed(params, dict(request.cookies))
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def _reviewed(self, params: JsonObject, session: dict[str, str]) -> Conversation:
        conversation = await self.begin(params, session)
        # Model and tools take turns until the model answers.
        await self.answer(conversation)
        for _ in range(self.config.reviews):
            if conversation.was_cut_off or self.is_out_of_steps(conversation):
                break
            conversation.hear(REVIEW)
            await self.answer(conversation)
        return conversation


if __name__ == "__main__":
    MyEnvironmentAgent.run_webserver()
