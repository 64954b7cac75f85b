"""The agent for programs. It runs one that calls an OpenAI, Anthropic or Gemini API, and has the result verified."""

import asyncio
import os
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from nemo_gym import (
    BaseRunRequest,
    Conversation,
    ConversingAgent,
    ConversingAgentConfig,
    DataError,
    InvalidTask,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    current_rollout_id,
    find_path,
    get_response_json,
    keep_if_failed,
)
from nemo_gym.harness import (
    ClaimRules,
    Gateway,
    Limits,
    OnClaims,
    Program,
    ToolAddress,
    Work,
    task_text,
    types_without_text,
)
from nemo_gym.harness.workspace import filled_in
from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox import SandboxProvider, SandboxResources, SandboxSpec, create_provider, resolve_provider_config
from responses_api_agents.harness_agent import gemini
from responses_api_agents.harness_agent.archives import PACKED, TaskFiles, TaskSandbox, packed, unpacked, unpacking

RESPONSES_PATH = "/v1/responses"
PYTHONPATH = "PYTHONPATH"
KIB = 1024
SPARE_S = 600.0
"""Seconds for starting the program and collecting its files. The provider ends a sandbox after `timeout_s` plus these
seconds, even if this server has stopped."""


class SandboxLimits(BaseModel):
    """The limits of a program's sandbox. Limits that are not set have the provider's defaults."""

    model_config = ConfigDict(extra="forbid")

    image: str | None = None
    """The container image, for providers that use images, such as docker."""
    cpu: float | None = Field(default=None, gt=0)
    memory_mib: int | None = Field(default=None, gt=0)
    disk_gib: float | None = Field(default=None, gt=0)
    pids: int | None = Field(default=None, gt=0)


class HarnessAgentConfig(ConversingAgentConfig):
    command: list[str] = Field(min_length=1)
    """The program and its arguments. The placeholders `{prompt}`, `{model}`, `{openai_base_url}`, `{api_key}`,
    `{anthropic_base_url}`, `{gemini_base_url}`, `{mcp_url}` and `{workdir}` are replaced here, in `env` and `files`.
    `{program_folder}` is replaced here and in `env`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the program. The agent adds the base URLs and keys for clients of the three APIs."""
    files: dict[str, Path] = Field(default_factory=dict)
    """Files to copy into the program's workspace: each path in the workspace → the path of a file on this machine."""
    program_folder: Path | None = None
    """The folder on this machine in which the program is installed. Bubblewrap sandboxes can read it."""
    prompt_file: str = "task.md"
    """The file in the workspace that contains the text of the task."""
    model_name: str = "policy"
    """The name by which the program calls the model. The model server replaces it with the configured model's name."""
    sandbox_provider: str | JsonObject = "bubblewrap"
    """The name of a sandbox provider or of a sandbox block in the config, or such a block itself."""
    shares_packages: bool = False
    """Whether Python programs can import this server's installed packages. Only bubblewrap sandboxes support this."""
    sandbox: SandboxLimits = Field(default_factory=SandboxLimits)
    workdir: str = "/workspace"
    gateway_host: str | None = None
    """An address of this machine that sandboxes can reach. Required if the provider cannot listen inside a sandbox."""
    timeout_s: float = Field(default=600.0, gt=0)
    """The maximum duration of a program. A program that takes longer is killed. Its rollout fails, unless the program
    has made a call beyond `max_steps`."""
    grace_s: float = Field(default=30.0, ge=0)
    """Seconds for the program to finish after a call beyond `max_steps`. Then it is killed, and its work is graded."""
    collects: list[str] = Field(default_factory=lambda: ["."])
    """The paths in the workspace whose files are sent to the verifier."""
    largest_file_kib: int = Field(default=256, ge=0)
    """The maximum size of a collected file. Larger files are skipped."""
    most_collected_kib: int = Field(default=4096, ge=0)
    """The maximum size of all collected files together, and of the archive of a row with `workspace_archive`."""
    graded_conversation: Literal["first", "last"] = "first"
    """The graded conversation of a program that has several: the first one with the task, or that of the last call."""
    claimed_answers: OnClaims = "keep"
    """The rule for a program that sends answers, tool calls or results of the environment's tools as history although
    they did not pass through the gateway. They are never graded. The rollout is kept, masked or failed."""
    claimed_observations: OnClaims = "keep"
    """The same for all other items that the program adds: messages, and results of its own tools."""
    keep_workspaces: Literal["never", "failed", "always"] = "never"
    """The rollouts whose workspace is kept, as `<rollout id>.tar` in `workspaces_dir`."""
    workspaces_dir: Path = Path("results/workspaces")

    @field_validator("collects")
    @classmethod
    def _are_in_the_workspace(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path or path.startswith("/") or ".." in PurePosixPath(path).parts:
                raise ValueError(
                    f"'{path}' is not a path in the workspace. Write it relative to the workspace, such as "
                    "out/answer.txt"
                )
        return paths


class HarnessRunRequest(TaskFiles, BaseRunRequest):
    """A dataset row, with the files of its workspace."""

    model_config = ConfigDict(extra="allow")


class HarnessAgent(ConversingAgent):
    """An agent that lets a program in a sandbox conduct the conversation with the model."""

    config: HarnessAgentConfig

    TOOLS_OVER_MCP = True

    def setup_webserver(self) -> FastAPI:
        """Return the app. Read the program's files and create the provider first, so that errors appear at startup."""
        _ = self._program, self._provider
        return super().setup_webserver()

    async def startup(self) -> None:
        """Raise `DataError` if the program's folder is missing, before the first rollout fails for that reason."""
        folder = self.config.program_folder
        if folder is not None and not self._folder.is_dir():
            raise DataError(
                f"{self.config.name}: program_folder: {folder} was not found. Install the program there, with "
                f"`make agents-{folder.name}` for the programs of this repository, or name its folder."
            )

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Let the program continue a conversation that has neither tools nor the `workspace_files` of a row."""
        params = body.model_dump(mode="json", exclude_unset=True)
        path = self.url_path_for_request(RESPONSES_PATH, request)
        conversation = await self.begin(params, dict(request.cookies), path)
        if conversation.params["tools"]:
            raise InvalidTask(
                f"{self.config.name}: a program can call the tools of a session only in a rollout. "
                "Call /run instead of /v1/responses"
            )
        await self._hold(conversation, TaskFiles(), None)
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def run(self, request: Request, body: HarnessRunRequest) -> Response:
        """Run the rollout of a row, including its verification, and return the verifier's reply."""
        return await super().run(request, body)

    async def converse(
        self, request: Request, body: HarnessRunRequest, row: JsonObject, session: dict[str, str]
    ) -> Conversation:
        """Run the program on the row's task, in a new sandbox."""
        conversation = await self.begin(row["responses_create_params"], session)
        seeded = await get_response_json(request.state.seeded)
        mcp = seeded.get("mcp") if isinstance(seeded, dict) else None
        await self._hold(conversation, body, self._tool_address(mcp, conversation.params["tools"]))
        return conversation

    async def _hold(self, conversation: Conversation, task: TaskFiles, tools: ToolAddress | None) -> None:
        if lost := types_without_text(conversation.params):
            raise InvalidTask(
                f"{self.config.name}: a program gets only the text of a task, but the row's input has "
                f"{', '.join(lost)}. Run such rows with another agent, such as simple_agent"
            )
        prompt = task_text(conversation.params)
        gateway = Gateway(
            self.server_client,
            self.config.model_server.name,
            model_prefix=conversation.model_path.removesuffix(RESPONSES_PATH),
            model_name=self.config.model_name,
            tools=tools,
            most_calls=self.config.max_steps,
            task=prompt,
            graded_conversation=self.config.graded_conversation,
            environment_tools=[str(tool.get("name")) for tool in conversation.params["tools"]] if tools else [],
            translate=gemini.translated,
        )
        keep_if_failed(gateway.items)
        with self._kept(task) as kept_at:
            work = Work(
                program=await self._program_for(task),
                files={**task.workspace_files, self.config.prompt_file: prompt},
                collects=self.config.collects,
                limits=Limits(self.config.largest_file_kib * KIB, self.config.most_collected_kib * KIB),
                keeps=self.config.keep_workspaces if task.workspace_archive is None else "always",
                kept_at=kept_at,
            )
            done = await work.done(
                self._provider, self._spec_for(task.sandbox), gateway, self.config.gateway_host, prompt
            )
            workspace = dict(done.workspace)
            if task.workspace_archive is not None:
                own, most_bytes = self._own_files, self.config.most_collected_kib * KIB
                workspace["archive"] = await asyncio.to_thread(packed, kept_at, own, most_bytes)
        recorded = gateway.recorded()
        conversation.response = recorded.response
        conversation.turns = gateway.calls
        conversation.added = {"program": {**done.program, **recorded.claims}, "workspace": workspace}
        rules = ClaimRules(self.config.claimed_answers, self.config.claimed_observations)
        conversation.mask_reason = rules.mask_reason(recorded.record)

    @contextmanager
    def _kept(self, task: TaskFiles) -> Iterator[Path]:
        """Yield the path for the archive of a workspace. If the config does not keep it, it is removed at the end."""
        # Use a random name if the caller of `/run` sends no rollout id, so that no workspace is overwritten.
        path = self.config.workspaces_dir / f"{current_rollout_id() or uuid4().hex}.tar"
        if task.workspace_archive is None or self.config.keep_workspaces == "always":
            yield path
        elif self.config.keep_workspaces == "failed":
            yield path
            path.unlink()
        else:
            with tempfile.TemporaryDirectory(prefix="nemo_gym-workspace-") as folder:
                yield Path(folder, "workspace.tar")

    async def _program_for(self, task: TaskFiles) -> Program:
        """Return the program with the time limit of a row, and with its archive."""
        program = replace(self._program, timeout_s=task.sandbox.timeout_s or self.config.timeout_s)
        if task.workspace_archive is None:
            return program
        archive = await asyncio.to_thread(unpacked, task.workspace_archive, self._own_files)
        files = {**program.files, PACKED: archive}
        return replace(program, command=unpacking(program.command), files=files)

    @property
    def _own_files(self) -> set[str]:
        return {*self.config.files, self.config.prompt_file}

    def _tool_address(self, mcp: JsonObject | None, tools: list[JsonObject]) -> ToolAddress | None:
        server = self.config.resources_server.name
        if mcp is not None:
            return ToolAddress(server, mcp["url_path"], mcp["headers"])
        if names := [str(tool.get("name")) for tool in tools]:
            raise InvalidTask(
                f"{server} has tools ({', '.join(names)}), which programs reach over MCP only. Set "
                f"expose_tools_over_mcp: true in the block of {server}.",
                server=server,
            )
        return None

    @cached_property
    def _folder(self) -> Path:
        folder = self.config.program_folder or Path()
        return (find_path(folder, Path.is_dir) or folder).absolute()

    @cached_property
    def _program(self) -> Program:
        known = {} if self.config.program_folder is None else {"program_folder": str(self._folder)}
        env = {name: filled_in(text, known) for name, text in self.config.env.items()}
        return Program(
            command=[filled_in(word, known) for word in self.config.command],
            env={**({PYTHONPATH: os.pathsep.join(_packages())} if self.config.shares_packages else {}), **env},
            files={path: self._content(source) for path, source in self.config.files.items()},
            timeout_s=self.config.timeout_s,
            grace_s=self.config.grace_s,
        )

    def _content(self, source: Path) -> bytes:
        found = find_path(source, Path.is_file)
        if found is None:
            raise DataError(f"{self.config.name}: files: {source} was not found. Name a file on this machine.")
        return found.read_bytes()

    @cached_property
    def _provider(self) -> SandboxProvider:
        provider = resolve_provider_config(self.config.sandbox_provider)
        for setting, shared in (
            ("shares_packages", _packages() if self.config.shares_packages else []),
            ("program_folder", [str(self._folder)] if self.config.program_folder else []),
        ):
            if not shared:
                continue
            if list(provider) != ["bubblewrap"]:
                raise DataError(
                    f"{self.config.name}: {setting} requires the sandbox provider bubblewrap. "
                    f"Set sandbox_provider: bubblewrap, or remove {setting}."
                )
            options = provider["bubblewrap"] or {}
            provider = {"bubblewrap": {**options, "readable": [*options.get("readable", ()), *shared]}}
        return create_provider(provider)

    def _spec_for(self, task: TaskSandbox) -> SandboxSpec:
        """Return the sandbox of the config, with the values that a row's task sets."""
        asked = task.model_dump(include={"cpu", "memory_mib", "disk_gib"}, exclude_none=True)
        return SandboxSpec(
            image=self.config.sandbox.image,
            workdir=task.workdir or self.config.workdir,
            env=task.env,
            resources=SandboxResources(**{**self.config.sandbox.model_dump(exclude={"image"}), **asked}),
            ttl_s=(task.timeout_s or self.config.timeout_s) + SPARE_S,
        )

    async def aclose(self) -> None:
        await self._provider.aclose()


def _packages() -> list[str]:
    """Return the folders of the packages that are installed with this server."""
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


if __name__ == "__main__":
    HarnessAgent.run_webserver()
