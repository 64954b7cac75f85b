"""Grade the tasks of Harbor: run a task's own tests, in a new sandbox, on the files that an agent left."""

import asyncio
import base64
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    DataError,
    EnvironmentFailed,
    InvalidTask,
    OutOfTurn,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    Tool,
    find_path,
)
from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox import AsyncSandbox
from nemo_gym.sandbox.providers.base import TIMED_OUT
from nemo_gym.sandbox.providers.bubblewrap import BubblewrapProvider
from resources_servers.harbor.left import graded_files
from resources_servers.harbor.sandboxes import OUTPUT_BYTES, SCRATCH, packed, sandbox_of, verified
from resources_servers.harbor.task import HarborTask, read_task
from resources_servers.harbor.tree import Tree, TreeError, archive_of

SESSION_TOOLS = "nemo_gym_session_tools"
"""The cookie by which `simple_agent` learns that the session has a tool, at `GET /session_tools`."""
MOST_WITHHELD = 100
"""The number of withheld files that a result lists."""


class HarborConfig(BaseResourcesServerConfig):
    """The sandboxes in which tests and commands run."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    readable: list[str] = Field(default_factory=list)
    """More files and folders of this machine that sandboxes may read, such as that of a Python with pytest."""
    memory_mib: int = Field(default=2048, gt=0)
    """The memory of a sandbox whose task sets none."""
    pids: int = Field(default=256, gt=0)
    concurrent_verifications: int = Field(default=8, ge=1)
    command_timeout_s: float = Field(default=120.0, gt=0)
    """The time limit of a command of the tool `bash`."""
    reward_key: str = "reward"
    """The reward of the rollout, if tests write several."""


class HarborRef(BaseModel):
    """The task of a row."""

    model_config = ConfigDict(extra="allow")

    path: Path
    """The task's folder, absolute or in a search root."""
    digest: str


class SeedRequest(BaseSeedSessionRequest):
    """The row whose task begins."""

    harbor: HarborRef


class Workspace(BaseModel):
    """The files that an agent left."""

    model_config = ConfigDict(extra="allow")

    archive: str | None = None


class VerifyRequest(BaseVerifyRequest):
    """The row, the agent's response and its files."""

    model_config = ConfigDict(extra="allow")

    harbor: HarborRef
    workspace: Workspace | None = None


class Terminal(SessionState):
    """The sandbox of a rollout whose agent calls the tool `bash`. It starts with the first call."""

    task: HarborTask | None = None
    stack: AsyncExitStack = Field(default_factory=AsyncExitStack)
    sandbox: AsyncSandbox | None = None
    turn: asyncio.Lock = Field(default_factory=asyncio.Lock)

    async def close(self) -> None:
        await self.stack.aclose()


class HarborServer(SimpleResourcesServer):
    """A server that grades the files of coding agents, and has a tool `bash` for other agents."""

    config: HarborConfig
    NOT_TOOLS = SimpleResourcesServer.NOT_TOOLS | {"bash"}
    """Coding agents have a shell of their own, so the tool is not listed for all sessions."""

    @cached_property
    def provider(self) -> BubblewrapProvider:
        """The sandboxes. Their folders /logs, /tests and /solution are those of Harbor."""
        limits = {"memory_mib": self.config.memory_mib, "pids": self.config.pids, "readable": self.config.readable}
        return BubblewrapProvider(scratch=SCRATCH, output_bytes=OUTPUT_BYTES, **limits)

    @cached_property
    def gate(self) -> asyncio.Semaphore:
        """The limit on tests that run at the same time."""
        return asyncio.Semaphore(self.config.concurrent_verifications)

    @cached_property
    def tool(self) -> Tool:
        """The tool of sessions."""
        return Tool.of(self.bash, name="bash")

    def setup_webserver(self) -> FastAPI:
        """Return the app, with the session's tool."""
        app = super().setup_webserver()
        app.get("/session_tools")(self.session_tools)
        app.post("/bash")(self.call_bash)
        return app

    async def close_owned(self) -> None:
        await super().close_owned()
        await self.provider.aclose()

    async def seed_session(self, body: SeedRequest, terminal: Terminal) -> Response:
        """Read the row's task, so that an agent does not work on one that cannot be graded."""
        terminal.task = await self._task(body.harbor)
        response = JSONResponse({})
        response.set_cookie(SESSION_TOOLS, "bash")
        return response

    async def session_tools(self) -> list[JsonObject]:
        """Return the session's tool, as a request lists it."""
        return [dict(self.tool.definition)]

    async def call_bash(self, request: Request) -> Response:
        """Call the session's tool."""
        if self.sessions.get(request.session[SESSION_ID_KEY], Terminal).task is None:
            raise OutOfTurn(f"{self.config.name}: POST /seed_session must begin a task first")
        with self.sessions.in_use(request.session[SESSION_ID_KEY]):
            return await self.tool.call(request, self.sessions, await request.body())

    async def bash(self, command: str, terminal: Terminal) -> str:
        """Run a command line in the task's working folder. Files stay; variables and the current folder do not."""
        assert terminal.task is not None, "the session was seeded"
        async with terminal.turn:
            if terminal.sandbox is None:
                timeout_s = terminal.task.toml.agent.timeout_sec
                opened = sandbox_of(self.provider, terminal.task, terminal.task.files, timeout_s)
                terminal.sandbox = await terminal.stack.enter_async_context(opened)
            result = await terminal.sandbox.exec(command, timeout_s=self.config.command_timeout_s)
        output = f"{result.stdout or ''}{result.stderr or ''}"
        if result.error_type == TIMED_OUT:
            return f"{output}\n[killed after {self.config.command_timeout_s:g} s]"
        if result.error_type is not None:
            raise EnvironmentFailed(
                f"the sandbox of {terminal.task.name} was lost, or agent.timeout_sec has passed: {result.stderr}"
            )
        return output if result.return_code == 0 else f"{output}\n[exit code {result.return_code}]"

    async def verify(self, body: VerifyRequest, terminal: Terminal) -> BaseVerifyResponse:
        """Return the reward that the task's tests write for the files that the agent left."""
        task = await self._task(body.harbor)
        if body.workspace is not None:
            archive = _archive_in(body.workspace)
        else:
            archive = await packed(terminal.sandbox) if terminal.sandbox else archive_of(task.files)
        await terminal.close()
        try:
            files, withheld = await asyncio.to_thread(graded_files, archive, task)
        except TreeError as error:
            raise EnvironmentFailed(f"the archive of the agent's files cannot be graded: {error}") from error
        # Keep the files of a session, so that the rollout can be verified again.
        kept = {} if body.workspace else {"workspace": {"archive": await asyncio.to_thread(_encoded, files)}}
        async with self.gate:
            outcome = await verified(self.provider, task, files)
        reward = outcome.rewards.get(self.config.reward_key)
        if reward is None:
            raise EnvironmentFailed(
                f"{task.name}: the tests wrote the rewards {', '.join(outcome.rewards)}, but not "
                f"{self.config.reward_key!r}. Set reward_key to one of them"
            )
        # Names of files may have bytes that are not text.
        shown = {name.encode(errors="replace").decode(): why for name, why in sorted(withheld.items())[:MOST_WITHHELD]}
        return BaseVerifyResponse.grade(
            body, reward=reward, rewards=outcome.rewards, withheld=shown, test_output=outcome.output, **kept
        )

    async def _task(self, row: HarborRef) -> HarborTask:
        """Return the task of a row. Raise `InvalidTask` if it is missing, unsupported, or another than in the row."""
        folder = find_path(row.path, Path.is_dir)
        if folder is None:
            raise InvalidTask(f"harbor.path: the folder {row.path} was not found. Make the rows again.")
        try:
            task = await asyncio.to_thread(read_task, folder)
        except DataError as error:
            raise InvalidTask(str(error)) from error
        if task.digest != row.digest:
            raise InvalidTask(f"{row.path} has changed since the row was made. Make the rows again.")
        return task


def _encoded(files: Tree) -> str:
    return base64.b64encode(archive_of(files)).decode()


def _archive_in(workspace: Workspace) -> bytes:
    if workspace.archive is None:
        raise EnvironmentFailed("the agent sent no workspace.archive. Use harness_agent, or an agent without files")
    try:
        return base64.b64decode(workspace.archive, validate=True)
    except ValueError as error:
        raise EnvironmentFailed(f"workspace.archive is not base64: {error}") from error


if __name__ == "__main__":
    HarborServer.run_webserver()
