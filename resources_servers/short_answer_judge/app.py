"""Grade short factual answers as correct, incorrect or not attempted, as a judge decides."""

from collections import Counter
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    JudgeFailed,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
)
from nemo_gym.grading import AnswerText, Judge, JudgeConfig, filled_with

CORRECT, INCORRECT, NOT_ATTEMPTED = VERDICTS = ("correct", "incorrect", "not attempted")
VERDICT_KEY = "verdict"


class ShortAnswerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge: Annotated[JudgeConfig, filled_with("question", "expected_answer", "answer")]
    """The judge. Its three labels mean correct, incorrect and not attempted, in this order."""


class ShortAnswerVerifyRequest(BaseVerifyRequest):
    """A `verify()` request with the row and the model's response."""

    model_config = ConfigDict(extra="allow")

    question: str
    expected_answer: AnswerText = Field(pattern=r"\S")


class ShortAnswerServer(SimpleResourcesServer):
    """A verifier that asks a judge whether the last message is correct, incorrect or no attempt to answer."""

    config: ShortAnswerConfig
    KEY_METRICS = (
        "mean/output_tokens",
        "correct",
        "incorrect",
        "not_attempted",
        "accuracy_given_attempted",
        "f_score",
    )

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.config.judge, self.server_client)

    async def startup(self) -> None:
        """Read the prompt, so that an invalid file is reported at startup."""
        await super().startup()
        _ = self.judge

    async def verify(self, body: ShortAnswerVerifyRequest) -> BaseVerifyResponse:
        answer = body.response.answer_text
        if not answer:
            why = "the answer is empty"
            return BaseVerifyResponse.grade(body, reward=0.0, verdict=NOT_ATTEMPTED, judge_evaluations=[], why=why)
        given = await self.judge.ask(question=body.question, expected_answer=body.expected_answer, answer=answer)
        if given.label is None:
            server = self.config.judge.model_server.name
            raise JudgeFailed(f"the judge '{server}' did not decide on a verdict ({given.outcome})", server=server)
        verdict = VERDICTS[self.config.judge.labels.index(given.label)]
        return BaseVerifyResponse.grade(
            body,
            reward=float(verdict == CORRECT),
            verdict=verdict,
            judge_evaluations=[call.record() for call in given.calls],
            why=f"the judge's verdict is '{given.label}'; only '{self.config.judge.labels[0]}' earns the reward",
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass@k, the percentage of each verdict, and the F-score."""
        verdicts = Counter(row[VERDICT_KEY] for rollouts in tasks for row in rollouts if VERDICT_KEY in row)
        return {**compute_pass_majority_metrics(tasks).metrics, **shares(verdicts)}


def shares(verdicts: Counter[str]) -> dict[str, float]:
    """Return the percentage of each verdict, the accuracy on attempted answers, and the F-score.

    The F-score is the harmonic mean of `correct` and `accuracy_given_attempted`. It is 0 if no answer is correct.
    """
    total = sum(verdicts[verdict] for verdict in VERDICTS)
    if not total:
        return {}
    attempted = verdicts[CORRECT] + verdicts[INCORRECT]
    return {
        "correct": 100 * verdicts[CORRECT] / total,
        "incorrect": 100 * verdicts[INCORRECT] / total,
        "not_attempted": 100 * verdicts[NOT_ATTEMPTED] / total,
        "accuracy_given_attempted": 100 * verdicts[CORRECT] / attempted if attempted else 0.0,
        "f_score": 100 * 2 * verdicts[CORRECT] / (total + attempted),
    }


if __name__ == "__main__":
    ShortAnswerServer.run_webserver()
