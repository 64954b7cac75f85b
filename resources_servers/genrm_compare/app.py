"""Reward the answers to one request by comparing them in pairs, with a generative reward model as the judge."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    JudgeFailed,
    ReverifyMode,
    SimpleResourcesServer,
)
from resources_servers.genrm_compare.aggregation import bradley_terry, expected_wins, mean_scores, shares_won
from resources_servers.genrm_compare.comparing import (
    Comparison,
    ComparisonConfig,
    PairwiseJudge,
    answer_of,
    preferences_of,
)
from resources_servers.genrm_compare.records import judge_metrics, records_of, won_of

REPEAT_KEY = "_ng_rollout_index"
DEFAULT_PRINCIPLE = "The better answer does what the request asks for, is true and is as short as it can be."


class GenRMCompareConfig(ComparisonConfig, BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    aggregator_method: Literal["bradley_terry", "wins", "scores"] = "bradley_terry"
    """How the results of the pairs are converted to rewards."""
    use_principle: bool = False
    """Whether to send the judge the row's principle, with `default_principle` as the fallback."""
    default_principle: str = DEFAULT_PRINCIPLE
    """The principle for rows that do not contain a principle."""


class GenRMCompareRequest(BaseVerifyRequest):
    """The row and the model's response."""

    model_config = ConfigDict(extra="allow")

    principle: str | None = None
    """The principle by which the judge compares, if `use_principle` is on."""
    subset: str | None = None
    """The row's subset. Metrics are also computed per subset."""


class GenRMCompareServer(SimpleResourcesServer):
    """A verifier that compares the answers to the same task in pairs and rewards the better ones more."""

    config: GenRMCompareConfig
    KEY_METRICS = (
        "mean/reward",
        "mean/output_tokens",
        "judged_pairs_pct",
        "ties_pct",
        "side_1_pct",
        "swap_disagreement_pct",
        "contradictory_verdicts_pct",
    )

    @cached_property
    def judge(self) -> PairwiseJudge:
        return PairwiseJudge(self.config, self.server_client, needs_scores=self.config.aggregator_method == "scores")

    async def verify_group(self, bodies: Sequence[GenRMCompareRequest]) -> Sequence[BaseVerifyResponse | JudgeFailed]:
        """Return a reward for each answer to a task, or a failure for an answer without a judged comparison."""
        answers = [answer_of(body.response) for body in bodies]
        comparisons = await self.judge.compare(_conversation_of(bodies[0]), answers, self._principle(bodies[0]))
        strengths = bradley_terry(preferences_of(comparisons))
        rewards = self._rewards(comparisons, strengths, answers)
        names = [(body.model_extra or {}).get(REPEAT_KEY, number) for number, body in enumerate(bodies)]
        return [
            BaseVerifyResponse.grade(
                body,
                reward=rewards[number],
                strength=strengths[number],
                comparisons=(records := records_of(comparisons, number, names)),
                why=f"{won_of(records)} ({self.config.aggregator_method})",
            )
            if number in rewards
            else self._failure(comparisons, number)
            for number, body in enumerate(bodies)
        ]

    def _principle(self, body: GenRMCompareRequest) -> str | None:
        return (body.principle or self.config.default_principle) if self.config.use_principle else None

    def _rewards(
        self, comparisons: Sequence[Comparison], strengths: Mapping[int, float], answers: Sequence[str]
    ) -> dict[int, float]:
        """Return the reward of each answer with a judged pair. `strengths` contains exactly these answers."""
        if self.config.aggregator_method == "bradley_terry":
            return expected_wins(strengths)
        if self.config.aggregator_method == "wins":
            return shares_won(preferences_of(comparisons))
        scores = mean_scores(opinion for each in comparisons for opinion in each.opinions)
        return {number: scores[number] if answers[number] else 0.0 for number in strengths}

    def _failure(self, comparisons: Sequence[Comparison], number: int) -> JudgeFailed:
        problems = [each.problem for each in comparisons if number in (each.one, each.other)]
        server = self.config.genrm_model_server.name
        return JudgeFailed(
            f"no comparison with this answer was judged. The first of {len(problems)}: {problems[0]}", server=server
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return metrics of the judge, overall and per `subset`, in percent."""
        return judge_metrics(tasks)


def _conversation_of(body: GenRMCompareRequest) -> list[dict[str, Any]]:
    params = body.responses_create_params
    system = [{"role": "system", "content": params.instructions}] if params.instructions else []
    return system + [item.model_dump(mode="json", exclude_unset=True) for item in params.input_items]


if __name__ == "__main__":
    GenRMCompareServer.run_webserver()
