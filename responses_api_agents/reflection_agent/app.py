"""The agent for reflection: another agent answers, a model criticizes the answer, and the other agent continues."""

from functools import cached_property
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Request, Response
from pydantic import Field

from nemo_gym import (
    BaseRunRequest,
    ComposingAgent,
    ComposingAgentConfig,
    Conversation,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    accumulate_response_usage,
    transcript_of,
)
from nemo_gym.grading import PromptFile, filled_with, read_prompt
from nemo_gym.harness import task_text
from nemo_gym.jsonl import JsonObject


class ReflectionAgentConfig(ComposingAgentConfig):
    rounds: int = Field(default=1, ge=1)
    """The number of critiques, each followed by another answer."""
    critique_prompt: Annotated[PromptFile, filled_with("task", "transcript")] = Field(
        default=Path("prompts/critique.md"), validate_default=True
    )
    """The prompt that asks `model_server` for a critique, with the placeholders `{task}` and `{transcript}`."""
    critique_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default=NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Request parameters of the critique; `input` is replaced."""
    revise_prompt: Annotated[PromptFile, filled_with("critique")] = Field(
        default=Path("prompts/revise.md"), validate_default=True
    )
    """The user message that asks the other agent for another answer, with the placeholder `{critique}`."""


class ReflectionAgent(ComposingAgent):
    """An agent that lets another agent improve its answer, in the same session of the environment."""

    config: ReflectionAgentConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app. Read the prompts first, so that a missing file is reported at startup."""
        _ = self._critique_prompt, self._revise_prompt
        return super().setup_webserver()

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Continue a conversation with critiques, in the session that the caller's cookies identify."""
        params = body.model_dump(mode="json", exclude_unset=True)
        path = self.url_path_for_request("/v1/responses", request)
        conversation = await self._improved(params, dict(request.cookies), path)
        for name, value in conversation.session.items():
            # Append the header directly, because `set_cookie` would quote the values, which are already quoted.
            response.headers.append("set-cookie", f"{name}={value}; Path=/")
        return NeMoGymResponse.model_validate(conversation.response)

    async def converse(
        self, request: Request, body: BaseRunRequest, row: JsonObject, session: dict[str, str]
    ) -> Conversation:
        path = self.url_path_for_run("/v1/responses", None)
        return await self._improved(row["responses_create_params"], session, path)

    async def _improved(self, params: JsonObject, session: dict[str, str], path: str) -> Conversation:
        """Return the conversation with all answers. Stop after an answer that was cut off."""
        conversation = Conversation(params, session)
        answer = await self._continue(conversation, path)
        usage, critiques = answer.usage, 0
        while critiques < self.config.rounds and answer.incomplete_details is None:
            critique = await self._critique(conversation)
            conversation.hear(self._revise_prompt.format(critique=critique.answer_text))
            answer = await self._continue(conversation, path)
            usage = accumulate_response_usage(accumulate_response_usage(usage, critique.usage), answer.usage)
            critiques += 1
        conversation.response["usage"] = None if usage is None else usage.model_dump(mode="json")
        conversation.added = {"critiques": critiques}
        return conversation

    async def _continue(self, conversation: Conversation, path: str) -> NeMoGymResponse:
        """Let the other agent continue the conversation, and append its output."""
        params = {**conversation.params, "input": [*conversation.asked, *conversation.said]}
        answer = await self.answer_of_agent(params, conversation.session, path)
        response = answer.model_dump(mode="json")
        conversation.response = {**response, "output": [*conversation.said, *response["output"]]}
        return answer

    async def _critique(self, conversation: Conversation) -> NeMoGymResponse:
        """Ask the model for a critique of the conversation so far. Raise `ModelFailed` if the critique is empty."""
        transcript = transcript_of(NeMoGymResponse.model_validate(conversation.response))
        question = self._critique_prompt.format(task=task_text(conversation.params), transcript=transcript)
        params = self.config.critique_responses_create_params.model_dump(mode="json", exclude_unset=True)
        critique = await self.answer_of_model(question, params)
        if not critique.answer_text:
            server = self.config.model_server.name
            raise ModelFailed(f"{server}: the critique is empty, or contains only reasoning", server=server)
        return critique

    @cached_property
    def _critique_prompt(self) -> str:
        return read_prompt(self.config.critique_prompt)

    @cached_property
    def _revise_prompt(self) -> str:
        return read_prompt(self.config.revise_prompt)


if __name__ == "__main__":
    ReflectionAgent.run_webserver()
