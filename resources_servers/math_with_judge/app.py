"""Grade the answer to a mathematical question by comparing it with the expected one. If they differ, ask a judge."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ModelServerRef,
    NeMoGymResponseCreateParamsNonStreaming,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.grading import AnswerText, Comparison, Judge, JudgeConfig, MathEquality, PromptFile, filled_with

PROMPT = Path(__file__).parent / "prompts" / "judge.md"
JudgePrompt = Annotated[PromptFile, filled_with("question", "first_answer", "second_answer")]
EQUAL, NOT_EQUAL = "[[A=B]]", "[[A!=B]]"
ANSWER_KEY = "extracted_answer"
SUBSET_KEY = "subset"
LONGEST_JUDGED_ANSWER = 4_000
"""The number of final characters of a message that the judge sees if no answer could be extracted."""


class MathWithJudgeConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    should_use_judge: bool = True
    judge_model_server: ModelServerRef | None = None
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = NeMoGymResponseCreateParamsNonStreaming(
        input=[]
    )
    judge_prompt_template_fpath: JudgePrompt = PROMPT
    judge_equal_label: str = EQUAL
    judge_not_equal_label: str = NOT_EQUAL
    library_verifier_timeout_seconds: float = Field(default=10, gt=0)
    """Time limit of one comparison by math-verify. After the limit, the answers count as not equal."""
    library_verifier_max_concurrency: int = Field(default=32, ge=1)
    """Maximum number of concurrent comparisons, but at most one per core."""

    @model_validator(mode="after")
    def _a_judge_is_named(self) -> Self:
        if self.should_use_judge and self.judge_model_server is None:
            raise ValueError("judge_model_server must name a model server, because should_use_judge is true")
        return self


class MathVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    question: str
    expected_answer: AnswerText = Field(pattern=r"\S")


class MathWithJudgeServer(SimpleResourcesServer):
    """A verifier that compares the answer in the last message with the expected one."""

    config: MathWithJudgeConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/library_accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@{k}/accuracy",
        "pass@{k}/library_accuracy",
        "majority@{k}/accuracy",
        "majority@{k}/library_accuracy",
        "{subset}/pass@1[avg-of-{k}]/accuracy",
    )

    @cached_property
    def equality(self) -> MathEquality:
        """The equality check for numbers and expressions. It runs math-verify in worker processes."""
        return MathEquality(
            max_workers=self.config.library_verifier_max_concurrency,
            deadline_s=self.config.library_verifier_timeout_seconds,
        )

    @cached_property
    def judge(self) -> Judge | None:
        """The judge, or None if the config does not use one. It is asked only if the comparison finds a difference."""
        if not self.config.should_use_judge or self.config.judge_model_server is None:
            return None
        settings = JudgeConfig(
            model_server=self.config.judge_model_server,
            prompt=self.config.judge_prompt_template_fpath,
            labels=[self.config.judge_equal_label, self.config.judge_not_equal_label],
            responses_create_params=self.config.judge_responses_create_params,
            swap=("first_answer", "second_answer"),
        )
        return Judge(settings, self.server_client)

    async def startup(self) -> None:
        """Load math-verify and the prompt, so that a missing library or file is reported at startup."""
        await super().startup()
        _ = self.equality, self.judge

    async def aclose(self) -> None:
        await super().aclose()
        self.equality.close()

    async def verify(self, body: MathVerifyRequest) -> BaseVerifyResponse:
        text = body.response.answer_text
        compared = await self.equality.compare(body.expected_answer, text)
        reward, evaluations = float(compared.is_equal), None
        why = _why(compared)
        if not compared.is_equal and text and self.judge:
            verdict = await self.judge.ask(
                question=body.question,
                first_answer=body.expected_answer,
                second_answer=compared.extracted or text[-LONGEST_JUDGED_ANSWER:],
            )
            reward = float(verdict.label == self.config.judge_equal_label)
            evaluations = [call.record() for call in verdict.calls]
            why += f"; the judge's verdict is {verdict.label or verdict.outcome}"
        return BaseVerifyResponse.grade(
            body,
            reward=reward,
            extracted_answer=compared.extracted,
            library_reward=float(compared.is_equal),
            judge_evaluations=evaluations,
            why=why,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        overall = compute_pass_majority_metrics(tasks, _scores, answer_key=ANSWER_KEY)
        return {**overall.metrics, **compute_subset_metrics(tasks, SUBSET_KEY, _scores, answer_key=ANSWER_KEY)}


def _why(compared: Comparison) -> str:
    if compared.extracted is None:
        return "no answer was found in the text"
    if compared.undecided:
        return f"the answers were not compared by rules: {compared.undecided}"
    return f"the answer {'equals' if compared.is_equal else 'does not equal'} the expected one by the rules"


def _scores(row: dict[str, Any]) -> dict[str, float]:
    reward = row.get("reward", 0.0)
    return {"accuracy": reward, "library_accuracy": row.get("library_reward", reward)}


if __name__ == "__main__":
    MathWithJudgeServer.run_webserver()
