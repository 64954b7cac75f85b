"""Grade an answer by several weighted criteria, each decided by a judge."""

import asyncio
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    JudgeFailed,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.grading import (
    AnswerText,
    Criterion,
    Judge,
    JudgeConfig,
    PromptFile,
    Rubric,
    Verdict,
    filled_with,
    read_rubric,
)

CRITERIA_KEY = "criteria"
EMPTY = "The answer is empty."
NO_REFERENCE = "(There is no reference answer.)"


class RubricJudgeConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    rubric: PromptFile = Path("rubrics/support_reply.md")
    """The criteria with their weights, as Markdown."""
    judge: Annotated[JudgeConfig, filled_with("introduction", "criterion", "question", "expected_answer", "answer")]
    """The judge. The first of its labels means that the criterion is met."""


class RubricVerifyRequest(BaseVerifyRequest):
    """A `verify()` request with the row and the model's response."""

    model_config = ConfigDict(extra="allow")

    question: str
    expected_answer: AnswerText | None = None
    """A reference answer, which only the judge sees."""


class RubricJudgeServer(SimpleResourcesServer):
    """A verifier that asks the judge once per criterion. The reward is the weighted share of the criteria met.

    With one call per criterion, a verdict does not depend on earlier verdicts, and a reply without a clear label
    affects only one criterion. The calls for an answer run concurrently.
    """

    config: RubricJudgeConfig

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.config.judge, self.server_client)

    @cached_property
    def rubric(self) -> Rubric:
        return read_rubric(self.config.rubric)

    async def startup(self) -> None:
        """Read the rubric and the prompt, so that an invalid file is reported at startup."""
        await super().startup()
        _ = self.judge, self.rubric

    async def verify(self, body: RubricVerifyRequest) -> BaseVerifyResponse:
        answer = body.response.answer_text
        if not answer:
            nothing = [self._record(each, is_met=False, reason=EMPTY) for each in self.rubric.criteria]
            return BaseVerifyResponse.grade(body, reward=0.0, criteria=nothing, judge_evaluations=[], why=EMPTY)
        criteria = self.rubric.criteria
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._ask(each, body, answer)) for each in criteria]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        verdicts = [task.result() for task in asked]
        records = [
            self._record(each, is_met=verdict.label == self.config.judge.labels[0], reason=verdict.text)
            for each, verdict in zip(criteria, verdicts, strict=True)
        ]
        missed = [each["name"] for each in records if not each["is_met"]]
        why = f"the answer meets {len(records) - len(missed)} of {len(records)} criteria"
        return BaseVerifyResponse.grade(
            body,
            reward=self.rubric.reward(each["name"] for each in records if each["is_met"]),
            criteria=records,
            judge_evaluations=[call.record() for verdict in verdicts for call in verdict.calls],
            why=f"{why}, not {', '.join(missed)}" if missed else why,
        )

    async def _ask(self, criterion: Criterion, body: RubricVerifyRequest, answer: str) -> Verdict:
        verdict = await self.judge.ask(
            introduction=self.rubric.introduction,
            criterion=criterion.text,
            question=body.question,
            expected_answer=body.expected_answer or NO_REFERENCE,
            answer=answer,
        )
        if verdict.label is None:
            server = self.config.judge.model_server.name
            raise JudgeFailed(
                f"the judge '{server}' did not decide whether the criterion '{criterion.name}' is met "
                f"({verdict.outcome})",
                server=server,
            )
        return verdict

    @staticmethod
    def _record(criterion: Criterion, *, is_met: bool, reason: str) -> dict[str, Any]:
        return {"name": criterion.name, "weight": criterion.weight, "is_met": is_met, "reason": reason}

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return, for each criterion, the percentage of answers that meet it."""
        rows = [row for rollouts in tasks for row in rollouts]
        metrics: dict[str, Any] = {}
        for criterion in self.rubric.criteria if rows else ():
            met = sum(
                each["is_met"] for row in rows for each in row.get(CRITERIA_KEY, ()) if each["name"] == criterion.name
            )
            metrics[f"criterion/{criterion.name}"] = 100 * met / len(rows)
        return metrics

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the mean reward and, for each criterion, the percentage of answers that meet it."""
        return {
            name: value
            for name, value in agent_metrics.items()
            if name == "mean/reward" or name.startswith("criterion/")
        }


if __name__ == "__main__":
    RubricJudgeServer.run_webserver()
