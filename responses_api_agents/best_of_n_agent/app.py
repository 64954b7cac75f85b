"""Best-of-N agent: another agent answers a row N times, and only the chosen answer is graded."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from fastapi import Request
from pydantic import Field

from nemo_gym import (
    BaseRunRequest,
    ComposingAgent,
    ComposingAgentConfig,
    Conversation,
    InvalidTask,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    RolloutError,
    accumulate_response_usage,
    transcript_of,
)
from nemo_gym.grading import Judge, JudgeConfig, PromptFile, filled_with
from nemo_gym.harness import task_text
from nemo_gym.jsonl import JsonObject
from responses_api_agents.best_of_n_agent.attempts import Answered, Attempt, most_common


class BestOfNAgentConfig(ComposingAgentConfig):
    attempts: int = Field(default=4, ge=2)
    """The number of times that the other agent answers."""
    choose: Literal["majority", "judge"] = "majority"
    """Whether the most common final answer is chosen, or the one that `model_server` considers the best."""
    judge_prompt: Annotated[PromptFile, filled_with("task", "attempts", "numbers")] = Field(
        default=Path("prompts/judge.md"), validate_default=True
    )
    """The judge's prompt, with `{task}`, `{attempts}` and their `{numbers}`. `{nonce}` delimits the texts."""
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default=NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Request parameters of the judge; `input` is replaced."""


class BestOfNAgent(ComposingAgent):
    """An agent that lets another agent try several times, each time in its own session of the environment."""

    config: BestOfNAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Reject the call, because each attempt needs its own session, which is seeded with a row."""
        raise InvalidTask(f"{self.config.name} seeds a session for each attempt, which needs a row. Call /run instead")

    async def converse(
        self, request: Request, body: BaseRunRequest, row: JsonObject, session: dict[str, str]
    ) -> Conversation:
        """Let the other agent try, choose one attempt, and close the sessions of the other attempts."""
        attempts = [Attempt(1, session), *map(Attempt, range(2, self.config.attempts + 1))]
        try:
            async with asyncio.TaskGroup() as group:
                tries = [group.create_task(self._try(attempt, row)) for attempt in attempts]
            answered = [each for task in tries if (each := task.result()) is not None]
            if not answered:
                assert attempts[0].failure is not None
                raise attempts[0].failure
            chosen, choice = await self._choose(answered, row["responses_create_params"])
            others = [attempt for attempt in attempts if attempt is not chosen.attempt]
            await self._close(others)
        except BaseException:
            # Leave out the first session, because the base class closes it.
            await self._close(attempts[1:])
            raise
        total = None
        for each in answered:
            total = accumulate_response_usage(total, each.response.usage)
        response = chosen.response.model_copy(update={"usage": total}).model_dump(mode="json")
        conversation = Conversation(row["responses_create_params"], chosen.attempt.session, response=response)
        records = [other.record() for other in others]
        conversation.added = {"chosen_attempt": chosen.attempt.number, **choice, "attempts": records}
        return conversation

    async def _try(self, attempt: Attempt, row: JsonObject) -> Answered | None:
        """Let the other agent answer. If it fails, store the failure and return None, because other attempts go on."""
        try:
            attempt.session = attempt.session or await self.seed_another_session(row)
            attempt.response = await self.answer_of_agent(row["responses_create_params"], attempt.session)
        except RolloutError as failure:
            attempt.failure = failure
            return None
        return Answered(attempt, attempt.response)

    async def _choose(self, answered: list[Answered], params: JsonObject) -> tuple[Answered, JsonObject]:
        """Return the chosen attempt, and the fields about the choice that are added to the graded row."""
        if self.config.choose == "majority":
            chosen, votes = most_common(answered)
            return chosen, {"votes": votes}
        if len(answered) == 1:
            return answered[0], {}
        by_number = {str(each.attempt.number): each for each in answered}
        config = JudgeConfig(
            model_server=self.config.model_server,
            prompt=self.config.judge_prompt,
            labels=list(by_number),
            responses_create_params=self.config.judge_responses_create_params,
        )
        verdict = await Judge(config, self.server_client).ask(
            task=task_text(params),
            attempts="\n\n".join(f"Attempt {n}:\n{transcript_of(each.response)}" for n, each in by_number.items()),
            numbers=", ".join(by_number),
        )
        assert verdict.label is not None, "a single vote always decides"
        (call,) = verdict.calls
        usage = None if call.response.usage is None else call.response.usage.model_dump(mode="json")
        return by_number[verdict.label], {"judge_text": verdict.text, "judge_usage": usage}

    async def _close(self, attempts: list[Attempt]) -> None:
        await self.close_sessions(attempt.session for attempt in attempts if attempt.session)


if __name__ == "__main__":
    BestOfNAgent.run_webserver()
