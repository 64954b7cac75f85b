"""Fulfil several wishes of one user at the workplace. The final database and the answers are graded."""

from statistics import fmean
from typing import Any

from pydantic import Field

from nemo_gym import (
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.jsonl import JsonObject
from resources_servers.multiple_intents.effects import effects_of_each
from resources_servers.multiple_intents.grading import COMPONENTS, grade
from resources_servers.multiple_intents.tasks import Task
from resources_servers.workplace_assistant.app import Desk, WorkplaceAssistantConfig, WorkplaceAssistantServer
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.database import Company


class MultipleIntentsConfig(WorkplaceAssistantConfig):
    """The server's configuration: the company, and the penalty for changes that no wish asks for."""

    damage_penalty: float = Field(default=1.0, gt=0, le=1)
    """The deduction from the reward if anything was changed that no wish asks for. Rewards are never negative."""


class SeedRequest(Task, BaseSeedSessionRequest):
    """The row that starts a session."""


class VerifyRequest(Task, BaseVerifyRequest):
    """A `verify()` request with the row and the conversation."""


class MultipleIntentsServer(WorkplaceAssistantServer):
    """A server that offers the workplace's tools and grades each wish."""

    config: MultipleIntentsConfig
    KEY_METRICS = (
        "mean/reward",
        "mean/all_done",
        *(f"mean/{component}" for component in COMPONENTS),
        "{subset}/pass@1[avg-of-{k}]/accuracy",
        "mean/input_tokens",
        "mean/output_tokens",
        "mean/total_tokens",
    )

    async def seed_session(self, body: SeedRequest, desk: Desk) -> None:
        """Validate the row before the model spends any time on it, and start with the company's initial data."""
        desk.company, desk.database = self._company_of(body), None
        effects_of_each(desk.company, [wish.calls for wish in body.wishes])

    async def verify(self, body: VerifyRequest, desk: Desk) -> BaseVerifyResponse:
        """Reward the share of fulfilled wishes, minus the penalty if anything else was changed."""
        desk.company = self._company_of(body)
        found = grade(body, self.reached(body.response, desk), body.response)
        penalty = self.config.damage_penalty if found.damage else 0.0
        return BaseVerifyResponse.grade(
            body,
            reward=max(0.0, fmean(found.done) - penalty),
            # Exclude defaults, because the reply must contain the row's wishes unchanged.
            wishes=[wish.model_dump(exclude_unset=True) for wish in body.wishes],
            all_done=all(found.done) and not found.damage,
            wishes_done=found.done,
            damage=found.damage,
            why=found.why,
            reward_components=found.components,
            **found.components,
        )

    def _company_of(self, row: Task) -> Company:
        return self.company if row.company is None else made_up_company(row.company)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass metrics of the reward, `all_done` and each component, overall and for each subset."""
        return {
            **compute_pass_majority_metrics(tasks, _scores).metrics,
            **compute_subset_metrics(tasks, "subset", _scores),
        }


def _scores(row: JsonObject) -> dict[str, float | None]:
    return {"accuracy": row.get("reward"), **{name: row.get(name) for name in ("all_done", *COMPONENTS)}}


if __name__ == "__main__":
    MultipleIntentsServer.run_webserver()
