"""Grade answers to questions about a long archive by comparing them with the expected answers."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.grading import AnswerText, number_in, unwrapped
from resources_servers.long_context.grading import Expected, Grader, graded, is_same

ANSWER_KEY = "extracted_answer"
BANDS = 5
"""The number of equal parts of the archive. Metrics are grouped by the part that contains the requested fact."""


class LongContextConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class Task(BaseModel):
    """The part of a row that decides the reward."""

    question: str = ""
    """The question. A number in the answer may be followed by words from the question, as its unit."""
    expected_answer: AnswerText | list[AnswerText]
    grader: Grader
    """The type of comparison. The items of a `list` must be in the expected order."""
    sources: list[str] | None = Field(default=None, min_length=1)
    """The ids of the passages that the answer must cite; null if it does not have to cite any."""
    distractors: list[AnswerText] = Field(default_factory=list)
    """Wrong answers that the archive suggests. They only affect the metric `distracted`."""

    @field_validator("expected_answer")
    @classmethod
    def _is_not_empty(cls, value: Expected) -> Expected:
        parts = value if isinstance(value, list) else [value]
        if not parts or not all(map(str.strip, parts)):
            raise ValueError(f"answers must not be empty: {value!r}")
        return value

    @field_validator("grader")
    @classmethod
    def _fits_the_answer(cls, value: Grader, info: ValidationInfo) -> Grader:
        if "expected_answer" not in info.data:  # Pydantic reports the invalid expected_answer.
            return value
        expected = info.data["expected_answer"]
        if isinstance(expected, list) != (value == "list"):
            raise ValueError(
                f"'{value}' does not fit the expected_answer {expected!r}. Use 'list' for lists, and only for lists."
            )
        if value == "number" and number_in(unwrapped(expected)) is None:
            raise ValueError(f"the expected_answer {expected!r} is not a number")
        return value


class LongContextSeedRequest(Task, BaseSeedSessionRequest):
    """The body of `/seed_session`: the row of the session that starts."""


class LongContextVerifyRequest(Task, BaseVerifyRequest):
    """A `verify()` request with the row and the model's response."""

    model_config = ConfigDict(extra="allow")


class LongContextServer(SimpleResourcesServer):
    """A verifier that compares the final answer of the last message with the expected answer."""

    config: LongContextConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@1[avg-of-{k}]/distracted",
        "pass@1[avg-of-{k}]/citation_f1",
        "pass@{k}/accuracy",
        "majority@{k}/accuracy",
        "{subset}/pass@1[avg-of-{k}]/accuracy",
    )

    async def seed_session(self, body: LongContextSeedRequest) -> None:
        """Validate the row before the model reads a long prompt."""

    async def verify(self, body: LongContextVerifyRequest) -> BaseVerifyResponse:
        """Reward the exact answer. If the row has `sources`, multiply the reward by the citation score."""
        result = graded(body.response.last_text, body.expected_answer, body.grader, body.sources, body.question)
        answer = result.answer or ""
        return BaseVerifyResponse.grade(
            body,
            reward=result.reward,
            reward_components=result.components,
            extracted_answer=result.answer,
            cited=result.cited,
            distracted=float(any(is_same(wrong, answer, body.grader, body.question) for wrong in body.distractors)),
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the scores overall, by `subset`, by prompt length, and by depth of the requested fact."""
        groups = [[{**row, **_groups_of(row)} for row in rollouts] for rollouts in tasks]
        metrics = compute_pass_majority_metrics(tasks, _scores, ANSWER_KEY).metrics
        for key in ("subset", "length", "depth"):
            metrics |= compute_subset_metrics(groups, key, _scores, ANSWER_KEY)
        return metrics


def _scores(row: dict[str, Any]) -> dict[str, float | None]:
    distracted = row.get("distracted") if row.get("distractors") else None
    return {"accuracy": row.get("reward"), "distracted": distracted, **(row.get("reward_components") or {})}


def _groups_of(row: dict[str, Any]) -> dict[str, str | None]:
    bucket, depth = row.get("length_bucket"), row.get("depth")
    length = None if bucket is None else f"length/{bucket}"
    if depth is None:
        return {"length": length, "depth": None}
    band, width = min(int(depth * BANDS), BANDS - 1), 100 // BANDS
    return {"length": length, "depth": f"depth/{band * width}-{(band + 1) * width}"}


if __name__ == "__main__":
    LongContextServer.run_webserver()
