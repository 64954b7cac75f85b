"""An assistant at work: 27 tools in a mailbox, a calendar, a web site's statistics, project boards and a CRM."""

import inspect
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from nemo_gym import (
    WORKING_DIR,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    InvalidTask,
    NeMoGymResponse,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    Tool,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.csv_files import read_company
from resources_servers.workplace_assistant.database import Company, Database
from resources_servers.workplace_assistant.replay import UnreadableCall, make_call
from resources_servers.workplace_assistant.toolkits import TOOLS, Function


class WorkplaceAssistantConfig(BaseResourcesServerConfig):
    """`database_dir` is a folder with WorkBench's CSV files; without it the company is our own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    database_dir: Path | None = None
    """Absolute, or relative to the repository."""


class GroundTruthCall(BaseModel):
    """A call of a perfect attempt; its arguments are a JSON object, written as text."""

    name: str
    arguments: str


class WorkplaceAssistantRunRequest(BaseRunRequest):
    """A row: what is asked for is done by the calls of the ground truth."""

    model_config = ConfigDict(extra="allow")

    id: int | str | None = None
    ground_truth: list[GroundTruthCall]
    category: str | None = None
    environment_name: str | None = None


class WorkplaceAssistantVerifyRequest(WorkplaceAssistantRunRequest, BaseVerifyRequest):
    """The row, and what the agent did."""


class Desk(SessionState):
    """This rollout's database, from its first tool call on."""

    database: Database | None = None


class WorkplaceAssistantServer(SimpleResourcesServer):
    """Offers the tools on a database for each rollout, and compares what has become of it with what should have."""

    config: WorkplaceAssistantConfig

    @cached_property
    def company(self) -> Company:
        """The start of every rollout."""
        folder = self.config.database_dir
        return made_up_company() if folder is None else read_company(WORKING_DIR / folder.expanduser())

    def setup_webserver(self) -> FastAPI:
        """The app; files that cannot be read as a company are told before the first rollout."""
        assert self.company
        return super().setup_webserver()

    def tools(self) -> list[Tool]:
        """One for each function of the toolkits."""
        return self._offered

    async def seed_session(self, body: BaseSeedSessionRequest, desk: Desk) -> None:
        """Begin with the company as it was."""
        desk.database = None

    async def verify(self, body: WorkplaceAssistantVerifyRequest, desk: Desk) -> float:
        """Reward a database that is as the ground truth leaves a fresh one."""
        expected = Database(self.company)
        for call in body.ground_truth:
            try:
                make_call(expected, call.name, call.arguments)
            except UnreadableCall as error:
                raise InvalidTask(f"{self.config.name}: ground_truth: {error}. Mend the row.") from error
        return float(self._reached(body, desk).is_like(expected))

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Pass rates, over all and for each category."""
        return {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, "category")}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Every mean but that of the rows' numbers."""
        return {key: value for key, value in super().get_key_metrics(agent_metrics).items() if key != "mean/id"}

    def _reached(self, body: WorkplaceAssistantVerifyRequest, desk: Desk) -> Database:
        if desk.database is not None:
            return desk.database
        # No tool was called in this session: the calls, if any, were made in one that is no more.
        database = Database(self.company)
        made = _made(body.response)
        for call in body.response.tool_calls:
            if call.call_id not in made:
                continue
            try:
                make_call(database, call.name, call.arguments)
            except UnreadableCall:
                continue
        return database

    @cached_property
    def _offered(self) -> list[Tool]:
        return [self._tool(name, function) for name, function in TOOLS.items()]

    def _tool(self, name: str, function: Function) -> Tool:
        """A toolkit's function on the database of the rollout that calls it."""

        async def call(desk: Desk, **arguments: Any) -> Any:
            desk.database = desk.database or Database(self.company)
            return function(desk.database, **arguments)

        call.__signature__ = _with_desk(inspect.signature(function, eval_str=True))  # type: ignore[attr-defined]
        return Tool.of(call, name=name, description=inspect.getdoc(function))


def _made(response: NeMoGymResponse) -> set[str]:
    """The ids of the calls that were made: of a turn that was cut off none was, and nothing answered them."""
    if response.incomplete_details is None:
        return {call.call_id for call in response.tool_calls}
    return {item.call_id for item in response.output if item.type == "function_call_output"}


def _with_desk(signature: inspect.Signature) -> inspect.Signature:
    """The signature with the session's desk in place of its first parameter, the database."""
    database, *arguments = signature.parameters.values()
    return signature.replace(parameters=[database.replace(name="desk", annotation=Desk), *arguments])


if __name__ == "__main__":
    WorkplaceAssistantServer.run_webserver()
