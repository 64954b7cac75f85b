"""Grade the answer to a mathematical question: by comparison, and by a judge where that says no."""

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

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
    highest_k_metrics,
)
from nemo_gym.grading import Judge, JudgeConfig, MathEquality, strip_reasoning

PROMPT = Path(__file__).parent / "prompts" / "judge.md"
EQUAL, NOT_EQUAL = "[[A=B]]", "[[A!=B]]"
ANSWER_KEY = "extracted_answer"
LONGEST_JUDGED_ANSWER = 4_000
"""Characters: where no answer could be extracted, the judge reads the end of the message."""


class MathWithJudgeConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    should_use_judge: bool = True
    judge_model_server: ModelServerRef | None = None
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = NeMoGymResponseCreateParamsNonStreaming(
        input=[]
    )
    library_verifier_timeout_seconds: float = Field(default=10, gt=0)
    """For one comparison by math-verify; what takes longer counts as not equal."""
    library_verifier_max_concurrency: int = Field(default=32, ge=1)
    """How many comparisons may run side by side; there are never more workers than cores."""

    @model_validator(mode="after")
    def _a_judge_is_named(self) -> Self:
        if self.should_use_judge and self.judge_model_server is None:
            raise ValueError("should_use_judge is true, so judge_model_server must name a model server")
        return self


class MathVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    question: str
    expected_answer: str = Field(pattern=r"\S")


class MathWithJudgeServer(SimpleResourcesServer):
    """Compares the answer in the last message with the expected one."""

    config: MathWithJudgeConfig

    @cached_property
    def equality(self) -> MathEquality:
        """Compares numbers and expressions."""
        return MathEquality(
            max_workers=self.config.library_verifier_max_concurrency,
            deadline_s=self.config.library_verifier_timeout_seconds,
        )

    @cached_property
    def judge(self) -> Judge | None:
        """Asked where the comparison says no; None where the config wants no judge."""
        if not self.config.should_use_judge or self.config.judge_model_server is None:
            return None
        settings = JudgeConfig(
            model_server=self.config.judge_model_server,
            prompt=PROMPT,
            labels=[EQUAL, NOT_EQUAL],
            responses_create_params=self.config.judge_responses_create_params,
            swap=("first_answer", "second_answer"),
        )
        return Judge(settings, self.server_client)

    async def startup(self) -> None:
        """A library or a prompt that is missing is told at once."""
        await super().startup()
        _ = self.equality, self.judge

    async def aclose(self) -> None:
        await super().aclose()
        self.equality.close()

    async def verify(self, body: MathVerifyRequest) -> BaseVerifyResponse:
        text = strip_reasoning(body.response.last_text)
        compared = await self.equality.compare(body.expected_answer, text)
        reward, evaluations = float(compared.is_equal), None
        if not compared.is_equal and text and self.judge:
            verdict = await self.judge.ask(
                question=body.question,
                first_answer=body.expected_answer,
                second_answer=compared.extracted or text[-LONGEST_JUDGED_ANSWER:],
            )
            reward = float(verdict.label == EQUAL)
            evaluations = [call.record() for call in verdict.calls]
        return BaseVerifyResponse.grade(
            body,
            reward=reward,
            extracted_answer=compared.extracted,
            library_reward=float(compared.is_equal),
            judge_evaluations=evaluations,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return compute_pass_majority_metrics(tasks, _scores, answer_key=ANSWER_KEY).metrics

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        tokens = ("mean/input_tokens", "mean/output_tokens")
        return {
            **{key: agent_metrics[key] for key in tokens if key in agent_metrics},
            **highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]"),
            **highest_k_metrics(agent_metrics, "pass@{k}", exclude_names=["no_answer"]),
            **highest_k_metrics(agent_metrics, "majority@{k}", exclude_names=["no_answer"]),
        }


def _scores(row: dict[str, Any]) -> dict[str, float]:
    reward = row.get("reward", 0.0)
    return {"accuracy": reward, "library_accuracy": row.get("library_reward", reward)}


if __name__ == "__main__":
    MathWithJudgeServer.run_webserver()
