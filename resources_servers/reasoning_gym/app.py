"""Ask questions from reasoning-gym's generators. The reward is reasoning-gym's own score of the answer."""

import logging
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    DataError,
    EnvironmentFailed,
    InvalidTask,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.grading import (
    AnswerText,
    WorkerCrashed,
    WorkerFailed,
    WorkerPool,
    WorkerTimedOut,
    last_boxed,
    strip_reasoning,
)
from resources_servers.reasoning_gym.scoring import (
    DEADLINE_S,
    NOT_INSTALLED,
    RowUnusable,
    check_name,
    generator_names,
    is_installed,
    score,
    scoring_workers,
)

logger = logging.getLogger(__name__)

OPEN, CLOSE = "<answer>", "</answer>"
ANSWER_KEY, TASK_KEY = "extracted_answer", "task_name"
LONGEST_ANSWER = 50_000
"""Maximum number of characters in an answer. A longer answer is never correct and would only keep a worker busy."""


class ReasoningGymConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    score_timeout_seconds: float = Field(default=DEADLINE_S, gt=0)
    """Time limit for scoring one answer. If scoring takes longer, the reward is 0."""
    score_max_concurrency: int = Field(default=8, ge=1)
    """Maximum number of answers that are scored concurrently, but at most one per core (or two on a single core)."""
    take_back_unearned: bool = False
    """Whether to correct the scores of the five generators whose scorers give full marks to wrong answers."""


class Metadata(BaseModel):
    """The generator's metadata, which the generator's scorer needs unchanged."""

    model_config = ConfigDict(extra="allow")

    source_dataset: str


class SeedRequest(BaseSeedSessionRequest):
    metadata: Metadata


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    question: str
    answer: AnswerText | None = None
    """The expected answer, or None if several answers are correct."""
    metadata: Metadata


class ReasoningGymServer(SimpleResourcesServer):
    """A verifier that scores the last message in worker processes, because reasoning-gym takes seconds to load."""

    config: ReasoningGymConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@{k}/accuracy",
        "majority@{k}/accuracy",
    )

    _names: list[str] | None = PrivateAttr(default=None)

    @property
    def workers(self) -> WorkerPool:
        """The pool of worker processes, in which reasoning-gym is loaded."""
        return scoring_workers(self.config.score_max_concurrency)

    def setup_webserver(self) -> FastAPI:
        """Return the app. Raises `DataError` if reasoning-gym is not installed."""
        if not is_installed():
            raise DataError(f"{self.config.name}: {NOT_INSTALLED}")
        return super().setup_webserver()

    def background_tasks(self) -> list[Any]:
        """Load reasoning-gym in the background, so that the server starts quickly."""
        return [*super().background_tasks(), self._load()]

    async def seed_session(self, body: SeedRequest) -> None:
        """Reject a row with an unknown generator before the model spends any time on it."""
        try:
            check_name(body.metadata.source_dataset, await self._generators())
        except RowUnusable as error:
            raise self._unusable(error) from error
        except WorkerFailed as error:
            raise EnvironmentFailed(f"{self.config.name}: reasoning-gym could not be loaded: {error}") from error

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        answer = answer_in(body.response.last_text)
        entry = {"question": body.question, "answer": body.answer, "metadata": body.metadata.model_dump()}
        earned = await self._score(answer, entry)
        return BaseVerifyResponse.grade(
            body, reward=earned, task_name=body.metadata.source_dataset, score=earned, extracted_answer=answer
        )

    async def _score(self, answer: str | None, entry: dict[str, Any]) -> float:
        is_too_long = answer is not None and len(answer) > LONGEST_ANSWER
        try:
            given = None if is_too_long else answer
            earned = await self.workers.run(
                score, given, entry, self.config.take_back_unearned, deadline_s=self.config.score_timeout_seconds
            )
            return 0.0 if is_too_long else earned
        except (WorkerTimedOut, WorkerCrashed) as error:
            logger.warning("an answer to %s earns 0: %s", entry["metadata"]["source_dataset"], error)
            return 0.0
        except RowUnusable as error:
            raise self._unusable(error) from error
        except WorkerFailed as error:
            raise EnvironmentFailed(f"{self.config.name}: no answer could be scored: {error}") from error

    async def _generators(self) -> list[str]:
        if self._names is None:
            self._names = await self.workers.run(generator_names)
        return self._names

    async def _load(self) -> None:
        try:
            await self._generators()
        except WorkerFailed as error:
            # Only log the failure, because each rollout loads reasoning-gym again and reports the same error.
            logger.warning("reasoning-gym could not be loaded: %s", error)

    def _unusable(self, error: RowUnusable) -> InvalidTask:
        return InvalidTask(f"{self.config.name}: metadata: {error} Fix the row.")

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass and majority rates, overall and for each generator."""
        overall = compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY)
        return {**overall.metrics, **compute_subset_metrics(tasks, TASK_KEY, answer_key=ANSWER_KEY)}


def answer_in(text: str) -> str | None:
    r"""Return the content of the last `<answer>…</answer>`, else of the last `\boxed{…}`, else the whole text.

    Reasoning in `<think>…</think>` is removed first. Returns None if the result is empty.
    """
    shown = strip_reasoning(text)
    start = shown.rfind(OPEN, 0, max(shown.rfind(CLOSE), 0))
    if start >= 0:
        found: str | None = shown[start + len(OPEN) : shown.find(CLOSE, start)]
    else:
        found = last_boxed(shown)
    return (shown if found is None else found).strip() or None


if __name__ == "__main__":
    ReasoningGymServer.run_webserver()
