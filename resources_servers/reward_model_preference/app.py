"""Reward an answer by the score of a reward model."""

from statistics import fmean
from typing import Any, ClassVar

from pydantic import BaseModel, FiniteFloat

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    JudgeFailed,
    ModelServerRef,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.grading import call_judge
from resources_servers.reward_model_preference.conversation import NotText, prompt_of
from resources_servers.reward_model_preference.shaping import ShapingConfig, count_words, shaped

SCORE_PATH = "/score"
REFERENCES = ("chosen", "rejected")
BY_SUBSET = ("reward", "raw_score")


class RewardModelPreferenceConfig(BaseResourcesServerConfig, ShapingConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    reward_model_server: ModelServerRef
    """A model server of the type `responses_api_models/reward_model`."""
    compare_references: bool = False
    """Whether to also score `chosen` and `rejected`, for the metrics `prefers_chosen` and `beats_rejected`."""


class RewardModelPreferenceRequest(BaseVerifyRequest):
    """A `verify()` request with the row and the model's response."""

    chosen: str | None = None
    """The better of two reference answers."""
    rejected: str | None = None
    """The worse of the two reference answers."""
    subset: str | None = None


class Scores(BaseModel):
    """The reward model's reply, one score per answer."""

    scores: list[FiniteFloat]


class RewardModelPreferenceServer(SimpleResourcesServer):
    """A verifier that sends the prompt and the final answer to a reward model, and converts the score to a reward."""

    config: RewardModelPreferenceConfig

    async def verify(self, body: RewardModelPreferenceRequest) -> BaseVerifyResponse:
        answer = body.response.answer_text
        words = count_words(answer)
        if not answer or body.response.incomplete_details is not None or body.response.status == "incomplete":
            return self._unfinished(body, words)
        references = self._references(body)
        score, *others = await self._scores(body, [answer, *references.values()])
        grade = shaped(score, words, self.config)
        parts = {"preference": grade.normalised, "length": grade.length, "clipping": grade.clipping}
        return BaseVerifyResponse.grade(
            body,
            reward=grade.reward,
            raw_score=score,
            normalised_score=grade.normalised,
            answer_words=words,
            is_clipped=float(grade.clipping != 0),
            is_unfinished=0.0,
            reward_components=parts,
            why=_why(parts),
            **_compared(score, dict(zip(references, others, strict=True))),
        )

    def _unfinished(self, body: BaseVerifyRequest, words: int) -> BaseVerifyResponse:
        reward = self.config.reward_of_nothing
        parts = {"unfinished": reward}
        return BaseVerifyResponse.grade(
            body,
            reward=reward,
            raw_score=None,
            normalised_score=None,
            answer_words=words,
            is_clipped=0.0,
            is_unfinished=1.0,
            reward_components=parts,
            why="the answer is empty or was cut off (unfinished_reward)",
        )

    def _references(self, body: RewardModelPreferenceRequest) -> dict[str, str]:
        if not self.config.compare_references:
            return {}
        return {name: text for name in REFERENCES if (text := getattr(body, name)) is not None}

    async def _scores(self, body: BaseVerifyRequest, answers: list[str]) -> list[float]:
        """Return one score per answer. Raise `JudgeFailed` if the reward model returns anything else."""
        server = self.config.reward_model_server.name
        try:
            prompt = prompt_of(body)
        except NotText as error:
            raise InvalidTask(f"{self.config.name}: {error}.", server=self.config.name) from error
        inputs = [{"prompt": prompt, "answer": answer} for answer in answers]
        reply = await call_judge(
            self.server_client,
            server_name=server,
            url_path=SCORE_PATH,
            json={"inputs": inputs},
            response_model=Scores,
        )
        if len(reply.scores) != len(answers):
            raise JudgeFailed(
                f"the reward model '{server}' returned {len(reply.scores)} scores for {len(answers)} answers",
                server=server,
            )
        return reply.scores

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the means of the numeric fields in `BY_SUBSET` for each `subset`."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in (row for rollouts in tasks for row in rollouts if row.get("subset") is not None):
            rows.setdefault(str(row["subset"]), []).append(row)
        return {
            f"mean/{field}/{subset}": fmean(values)
            for subset, members in rows.items()
            for field in BY_SUBSET
            if (values := [row[field] for row in members if isinstance(row.get(field), (int, float))])
        }


def _why(parts: dict[str, float]) -> str:
    return "the sum of " + ", ".join(f"{name} {value:.3g}" for name, value in parts.items())


def _compared(score: float, references: dict[str, float]) -> dict[str, float]:
    """Return the references' scores, and how `rejected` compares: 1 if its score is lower, 0.5 if equal, else 0."""
    fields = {f"{name}_score": value for name, value in references.items()}
    if "rejected" in references:
        fields["beats_rejected"] = _is_higher(score, references["rejected"])
    if len(references) == len(REFERENCES):
        fields["prefers_chosen"] = _is_higher(references["chosen"], references["rejected"])
    return fields


def _is_higher(one: float, other: float) -> float:
    return 0.5 if one == other else float(one > other)


if __name__ == "__main__":
    RewardModelPreferenceServer.run_webserver()
