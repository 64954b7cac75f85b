"""Assist with office work, with 27 tools for email, calendar, web analytics, project boards and customers."""

import inspect
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    NeMoGymResponse,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    Tool,
    ToolError,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    find_path,
)
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.csv_files import read_company
from resources_servers.workplace_assistant.database import Company, Database
from resources_servers.workplace_assistant.effects import difference, effects_on
from resources_servers.workplace_assistant.replay import UnreadableCall, make_call, try_call
from resources_servers.workplace_assistant.toolkits import TOOLS, Function


class WorkplaceAssistantConfig(BaseResourcesServerConfig):
    """The server's configuration: the source of the company's data. By default, the company is generated."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    database_dir: Path | None = None
    """The folder with WorkBench's CSV files, absolute or relative to a search root, such as the repository."""


class GroundTruthCall(BaseModel):
    """A tool call of a perfect attempt. `arguments` is a JSON object as text."""

    name: str
    arguments: str


class WorkplaceAssistantRunRequest(BaseRunRequest):
    """A row with a request, and the calls that fulfil it."""

    model_config = ConfigDict(extra="allow")

    id: int | str | None = None
    ground_truth: list[GroundTruthCall]
    category: str | None = None
    environment_name: str | None = None


class WorkplaceAssistantVerifyRequest(WorkplaceAssistantRunRequest, BaseVerifyRequest):
    """A `verify()` request with the row and the agent's response."""


class Desk(SessionState):
    """The database of one rollout. The rollout's first tool call creates it."""

    company: Company | None = None
    """The company's initial data for this rollout. By default, it is the server's company."""
    database: Database | None = None


class WorkplaceAssistantServer(SimpleResourcesServer):
    """A server whose tools use one database per rollout. It compares the final contents with the expected contents."""

    config: WorkplaceAssistantConfig
    KEY_METRICS = ("mean/reward", "mean/input_tokens", "mean/output_tokens", "mean/total_tokens")

    @cached_property
    def company(self) -> Company:
        """The initial state of rollouts, unless `Desk.company` is set."""
        folder = self.config.database_dir
        return made_up_company() if folder is None else read_company(find_path(folder, Path.is_dir) or folder)

    def setup_webserver(self) -> FastAPI:
        """Return the app. Raises `DataError` if the company's files are invalid."""
        assert self.company
        return super().setup_webserver()

    def tools(self) -> list[Tool]:
        """Return one tool for each function of the toolkits."""
        return self._toolkit_tools

    async def seed_session(self, body: BaseSeedSessionRequest, desk: Desk) -> None:
        """Discard the session's database, so that the rollout starts with the company's initial data."""
        desk.database = None

    async def verify(self, body: WorkplaceAssistantVerifyRequest, desk: Desk) -> BaseVerifyResponse:
        """Reward the rollout if its final database equals the one that the ground truth's calls produce.

        Raises `InvalidTask` if a tool rejects one of them, because then doing less than asked would earn the reward.
        """
        expected = Database(self.company)
        for call in body.ground_truth:
            try:
                try_call(expected, call.name, call.arguments)
            except UnreadableCall as error:
                raise InvalidTask(f"{self.config.name}: ground_truth: {error}. Fix the row.") from error
            except ToolError as error:
                raise InvalidTask(
                    f"{self.config.name}: ground_truth: {call.name}: {error} Fix the row, or set database_dir to the "
                    "tables of its company."
                ) from error
        why = difference(effects_on(self.reached(body.response, desk)), effects_on(expected))
        return BaseVerifyResponse.grade(body, reward=float(not why), why=why or "the final data are as expected")

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass rates overall and for each category."""
        return {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, "category")}

    def reached(self, response: NeMoGymResponse, desk: Desk) -> Database:
        """Return the database after the response's calls."""
        if desk.database is not None:
            return desk.database
        # Replay the calls, because they were executed in an earlier session and not in this one.
        database = Database(desk.company or self.company)
        executed = _executed(response)
        for call in response.tool_calls:
            if call.call_id not in executed:
                continue
            try:
                make_call(database, call.name, call.arguments)
            except UnreadableCall:
                continue
        return database

    @cached_property
    def _toolkit_tools(self) -> list[Tool]:
        return [self._tool(name, function) for name, function in TOOLS.items()]

    def _tool(self, name: str, function: Function) -> Tool:
        """Return a tool that applies a toolkit's function to the calling rollout's database."""

        async def call(desk: Desk, **arguments: Any) -> Any:
            desk.database = desk.database or Database(desk.company or self.company)
            return function(desk.database, **arguments)

        call.__signature__ = _with_desk(inspect.signature(function, eval_str=True))  # type: ignore[attr-defined]
        return Tool.of(call, name=name, description=inspect.getdoc(function))


def _executed(response: NeMoGymResponse) -> set[str]:
    """Return the ids of the executed calls. In a truncated response, calls without an output were not executed."""
    if response.incomplete_details is None:
        return {call.call_id for call in response.tool_calls}
    return {item.call_id for item in response.output if item.type == "function_call_output"}


def _with_desk(signature: inspect.Signature) -> inspect.Signature:
    """Replace a signature's first parameter, the database, by the session's desk."""
    database, *arguments = signature.parameters.values()
    return signature.replace(parameters=[database.replace(name="desk", annotation=Desk), *arguments])


if __name__ == "__main__":
    WorkplaceAssistantServer.run_webserver()
